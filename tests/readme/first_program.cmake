# The README's first program is the second example, to the letter: cmake -DREADME=... -DEXAMPLE=... -P first_program.cmake
file(READ "${README}" readme)
file(READ "${EXAMPLE}" example)
string(FIND "${example}" "#include" start)
string(SUBSTRING "${example}" ${start} -1 program)
string(FIND "${readme}" "```cpp\n${program}```" place)
if(place EQUAL -1)
    message(FATAL_ERROR "The first program of ${README} is not ${EXAMPLE} from its first #include on: copy it again")
endif()
