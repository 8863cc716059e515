"""A stand-in for Horovod with its public names, between local ranks on the CPU. This folder is put on sys.path."""
