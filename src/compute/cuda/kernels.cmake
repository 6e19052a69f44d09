# The GPU's kernels: machine code for every target, inside the program. Without nvcc, and under sanitizers, which
# would gain nothing by it, the program has none and says so.
option(PLATEAU_CUDA "Compile the GPU's kernels where nvcc is" ON)
set(PLATEAU_CUDA_TARGETS 80 86 89 90a 100a 120a CACHE STRING "What the GPU's kernels are compiled for")
option(PLATEAU_CUDA_ONE_TARGET "Compile the GPU's kernels for one target alone: of tests, where no GPU is" OFF)
if(PLATEAU_CUDA AND NOT PLATEAU_SANITIZE)
  file(GLOB wheels ${CMAKE_SOURCE_DIR}/.venv-gpu/lib/python3*/site-packages/nvidia/cu*/bin)
  find_program(PLATEAU_NVCC nvcc PATHS /usr/local/cuda/bin ${wheels})
endif()
if(NOT PLATEAU_NVCC OR NOT PLATEAU_CUDA OR PLATEAU_SANITIZE)
  message(STATUS "No nvcc: the program has no GPU kernels (tools/install-packages gpu brings one)")
  return()
endif()
# The targets without a letter share the PTX of the first of them, those from 100 on that of 100: nvcc's front end
# takes longer than ptxas, and the machine code is the same.
set(targets)
set(shared)
set(wanted ${PLATEAU_CUDA_TARGETS})
if(PLATEAU_CUDA_ONE_TARGET)
  set(wanted 90a)
endif()
foreach(target ${wanted})
  set(ptx ${target})
  if(NOT target MATCHES "[a-z]$")
    if(NOT shared)
      set(shared ${target})
    endif()
    set(ptx ${shared})
  elseif(target MATCHES "^1[0-9][0-9]")
    set(ptx 100)
  endif()
  list(APPEND targets -gencode arch=compute_${ptx},code=sm_${target})
endforeach()
set(images)
foreach(name rows bf16 experts wide wide_small few few_small repack project attention attend attend_wide
    attend_warp recurrent delta route top sample encode encode_attend)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  # -fmad=false: a sum is what the source says, as everywhere; fused operations are written as fmaf. What ptxas
  # says of each kernel lies beside the image, for tools/check-ptxas.
  add_custom_command(OUTPUT ${image}
    COMMAND sh -c "\"$@\" 2>${image}.ptxas || { cat ${image}.ptxas >&2; exit 1; }" sh
      ${PLATEAU_NVCC} -std=c++17 -fmad=false -fatbin ${targets} -Xptxas -v -I ${CMAKE_SOURCE_DIR}/src -o ${image}
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/${name}.cu
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/${name}.cu ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/common.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/fragment.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/mma.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/ptx.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/wgmma.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/attend.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/attend_few.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/few.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/wide.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/append.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/codes.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/recurrent.cuh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/kernels/window.cuh
      ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_args.h ${CMAKE_CURRENT_SOURCE_DIR}/row_top.h
      ${CMAKE_CURRENT_SOURCE_DIR}/row_sample.h ${CMAKE_SOURCE_DIR}/src/base/sample_weight.h
    COMMENT "GPU kernels: ${name}" VERBATIM)
  list(APPEND images ${image})
endforeach()
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda_image.c PROPERTIES
  COMPILE_DEFINITIONS PLATEAU_CUDA_KERNELS="${CMAKE_CURRENT_BINARY_DIR}" OBJECT_DEPENDS "${images}")
