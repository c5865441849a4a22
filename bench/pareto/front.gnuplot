# Held-out loss, as a difference from the baseline's with its standard error, against the reduction of bytes across nodes:
#
#   gnuplot -e "data='FILE'; image='FILE.png'; islands='2 4 8'" front.gnuplot
#
# FILE has lines of label, reduction, difference and error: a data set of single trainings, then one for each number of islands,
# with a block for each interval.
set terminal pngcairo size 1300,800
set output image
set grid
set logscale x 2
set xrange [0.7:4096]
set nonlinear y via asinh(y) inverse sinh(y)  # Small differences and large ones are both seen.
set ytics (-4, -2, -1, 0, 1, 2, 4, 8, 16, 32)
set yrange [-5:64]
set xlabel "times fewer bytes across nodes than ZeRO-3 in bf16"
set ylabel "held-out loss, percent above bf16's"
set key top left
plot 0 with lines linecolor "gray" notitle, 1 with lines linecolor "gray" dashtype 2 notitle, \
     data index 0 using 2:3:4 with yerrorbars pointtype 7 linecolor "black" title "synchronous training, and variants", \
     data index 0 using 2:3:1 with labels rotate by -30 offset character 0.6,-0.6 left noenhanced notitle, \
     for [i = 1:words(islands)] data index i using 2:3:4 with yerrorlines pointtype 7 linecolor i \
         title sprintf("%s islands, in 16, 4 and 2 bits", word(islands, i)), \
     for [i = 1:words(islands)] data index i using 2:3:1 with labels offset character -0.6,0.6 right notitle
