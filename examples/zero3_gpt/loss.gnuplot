# Training losses of all runs: gnuplot -e "data='FILE'; image='FILE.png'" loss.gnuplot
set terminal pngcairo size 960,600
set output image
set title "zero3_gpt: training loss by what goes over the wire" noenhanced
set xlabel "step"
set ylabel "loss, nats per byte"
set key autotitle columnhead noenhanced
set grid
columns = int(system("head -n 1 '" . data . "' | wc -w"))
plot for [c = 2:columns] data using 1:c with lines linewidth 1.5
