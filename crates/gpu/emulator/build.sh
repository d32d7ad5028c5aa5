#!/bin/sh
# Builds the emulator into a folder: build.sh FOLDER
set -e
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
c++ -std=c++17 -O3 -ffast-math -w -shared -fPIC -DEMULATOR="\"$here\"" -o "$1/libcuda.so" "$here/emulator.cpp" -ldl
ln -sf libcuda.so "$1/libnvrtc.so"
ln -sf libcuda.so "$1/libcublasLt.so"
