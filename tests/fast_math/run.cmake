# SPDX-License-Identifier: Apache-2.0
# Builds tests/fast_math/main.cpp by COMPILER as engines do that trade exactness for speed, and runs it.

file(REMOVE_RECURSE "${BINARY}")
file(MAKE_DIRECTORY "${BINARY}")

# Vectors of eight are the fallback, sixteen the twin of AVX-512. -Ofast is -O3 -ffast-math.
foreach(build
    "fast 16 -Ofast"
    "plain 8 -O2 -ffast-math"
    "parts 8 -O3 -fassociative-math -fno-signed-zeros -fno-trapping-math -ffinite-math-only")
  string(REPLACE " " ";" build "${build}")
  list(POP_FRONT build name width)
  set(program "${BINARY}/${name}")
  execute_process(COMMAND "${COMPILER}" -std=c++20 ${build} -Wall -Wextra -Wconversion -Wshadow -Werror "-I${INCLUDE}"
    "-DKVCACHE_TEST_WIDTH=${width}" "${SOURCE}" -o "${program}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${COMPILER} ${build}: does not compile\n${output}")
  endif()
  execute_process(COMMAND "${program}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${COMPILER} ${build}: wrong numbers (${result})\n${output}")
  endif()
  message("${COMPILER} ${build}\n${output}")
endforeach()
