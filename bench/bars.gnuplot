# Groups of bars, a group for each line of a table whose first line names its columns:
#
#   gnuplot -e "data='FILE'; image='FILE.png'; heading='TITLE'; unit='LABEL'; columns=N" bars.gnuplot
set terminal pngcairo size 1100,600
set output image
set title heading noenhanced
set ylabel unit
set style data histogram
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set boxwidth 0.9
set grid ytics
set bmargin 4
set yrange [0:*]
set xtics noenhanced
set key outside right top noenhanced autotitle columnhead
set datafile missing "-"
# gnuplot repeats its colours after eight.
set linetype 9 linecolor rgb "#8c564b"
set linetype 10 linecolor rgb "#9a9a9a"
set linetype cycle 10
plot for [c = 2:columns] data using c:xtic(1) linetype c - 1
