"""Horovod as scripts for GPUs see it, between local ranks on the CPU. This folder goes on sys.path."""
