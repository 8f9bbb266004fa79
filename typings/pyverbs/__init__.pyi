# What this project uses of pyverbs (rdma-core 44 and later), which ships no types of its own.
