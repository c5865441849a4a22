# Groups of bars, a group for each line of a table whose first line names its columns:
#
#   gnuplot -e "data='FILE'; image='FILE.png'; heading='TITLE'; unit='LABEL'" bars.gnuplot
set terminal pngcairo size 1100,600
set output image
set title heading noenhanced
set ylabel unit
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set boxwidth 0.9
set grid ytics
set yrange [0:*]
set xtics rotate by -20 noenhanced
set key outside right top noenhanced autotitle columnhead
set datafile missing "-"
columns = int(system("head -n 1 '" . data . "' | wc -w"))
plot for [c = 2:columns] data using c:xtic(1)
