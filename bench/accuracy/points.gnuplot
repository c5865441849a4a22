# SQNR against bits per element, a panel for each sample, from FOLDER/SAMPLE.dat: bits, dB, number of the format.
#
#   gnuplot -e "folder='FOLDER'; samples='SAMPLE...'; image='FILE.png'" points.gnuplot
set terminal pngcairo size 1650,1200 font ",9"
set output image
set multiplot layout 2,3
set grid
set logscale x
set xrange [3.4:9.2]
set xtics (3.5, 4, 4.25, 4.5, 5, 6, 7, 8, 9)
set xlabel "bits per element, scales included"
set ylabel "SQNR, dB"
unset key
do for [s in samples] {
    set title s noenhanced
    file = folder . "/" . s . ".dat"
    plot file using 1:2 with points pointtype 7 pointsize 0.6, \
         file using 1:2:3 with labels offset character 1,0.3 font ",7"
}
unset multiplot
