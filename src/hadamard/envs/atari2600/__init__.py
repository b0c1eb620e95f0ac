"""The Atari 2600, one source for the host and the GPU, and what ALE makes of its games.

The console is in the headers: ``processor.h`` (6507), ``riot.h`` (timer and ports), ``tia.h``
(registers) and ``beam.h`` (what they draw), ``cartridge.h``, ``frame.h`` (the frame loop and the
switches). ``agent.h`` makes steps of an agent out of frames. ``games.py`` is the table of games,
whose readings of RAM become C++ in ``source.py``. ``emulators.py`` plays them on the host.

It was written from hardware documents and from what ale-py does with games and with programs of our
own, and is compared with ale-py frame by frame (``benchmarks/atari_exact.py``).
"""
