# The losses of all runs, and below how far they are from the first one's, in percent:
#
#   gnuplot -e "data='FILE'; image='FILE.png'; last='COLUMNS'; window='STEPS'" curves.gnuplot
set terminal pngcairo size 1100,900
set output image
set multiplot layout 2,1
set grid
set xlabel "step"
set key autotitle columnhead noenhanced outside right top
set ylabel "training loss, nats per byte, over " . window . " steps"
plot for [c = 2:last] data using 1:c with lines linewidth 1.5
set ylabel "difference to the baseline, percent"
plot for [c = 2:last] data using 1:(100 * (column(c) / $2 - 1)) with lines linewidth 1.5
unset multiplot
