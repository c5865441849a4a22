# How far each run's held-out loss is from the baseline's, with its standard error, against how many times fewer bytes it moves:
#
#   gnuplot -e "data='FILE'; image='FILE.png'" front.gnuplot
set terminal pngcairo size 1300,800
set output image
set grid
set logscale x 2
set xrange [0.7:4096]
set xlabel "times fewer bytes across nodes than ZeRO-3 in bf16"
set ylabel "held-out loss, percent above the baseline's"
unset key
plot 0 with lines linecolor "gray", 1 with lines linecolor "gray" dashtype 2, \
     data using 2:3:4 with yerrorbars pointtype 7 linecolor 1, \
     data using 2:3:1 with labels offset character 0.8,0.6 left noenhanced
