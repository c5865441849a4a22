# Time of a step against the rate of links and bytes and time against ranks, from FOLDER/sweep.dat and FOLDER/growth.dat:
#
#   gnuplot -e "folder='FOLDER'; image='FILE.png'; heading='TITLE'" scale.gnuplot
set terminal pngcairo size 1650,600 font ",10"
set output image
set multiplot layout 1,3
set grid
set key top noenhanced autotitle columnhead
set datafile missing "-"
set logscale xy
set title heading noenhanced
set xlabel "link of a node, Gbit/s"
set ylabel "simulated communication of a step, s"
set xtics (100, 200, 400, 800)
sweep = folder . "/sweep.dat"
columns = int(system("head -n 1 '" . sweep . "' | wc -w"))
plot for [c = 2:columns] sweep using 1:c with linespoints linewidth 1.5
set title "fixed model size for each rank: time"
set xlabel "ranks, 8 to a node"
set ylabel "communication of a step, s"
set xtics auto
set key left top
growth = folder . "/growth.dat"
plot growth using 1:2 with points pointtype 7, growth using 1:3 with points pointtype 5, \
     growth using 1:4 with lines linewidth 1.5, growth using 1:5 with lines linewidth 1.5
set title "fixed model size for each rank: bytes"
set ylabel "bytes across nodes in a step, of one node, GB"
plot growth using 1:6 with points pointtype 7, growth using 1:7 with points pointtype 5, \
     growth using 1:8 with lines linewidth 1.5, growth using 1:9 with lines linewidth 1.5
unset multiplot
