# Held-out loss, as a difference from the baseline's with its standard error, against the size of the model:
#
#   gnuplot -e "data='FILE'; image='FILE.png'; settings=N" sizes.gnuplot
#
# FILE has a data set for each setting: its name, then lines of millions of parameters, difference and error.
set terminal pngcairo size 1000,600
set output image
set grid
set logscale x
set xrange [0.1:10]
set xlabel "millions of parameters"
set ylabel "held-out loss, percent above bf16's"
set key top left noenhanced
# Settings lie a little beside each other, so that their errors are all seen.
plot 0 with lines linecolor "gray" notitle, \
     for [i = 0:settings - 1] data index i using ($1 * (1 + 0.02 * i)):2:3 with yerrorlines pointtype 7 title columnheader(1)
