/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - what the environment says of the emulated devices. */
#ifndef SETTINGS_H
#define SETTINGS_H

enum { SETTINGS_MOST_GPUS = 16 };

/* EMULATION_GPUS, 8: GPUs that a process sees. */
int settings_gpus(void);
/* EMULATION_SMS, 4: multiprocessors of each; of a list, as in 24,12, GPUs take numbers in turn. */
int settings_sms(int gpu);
/* EMULATION_SEED, 0: of the order in which threads run; 0 = by their numbers. */
unsigned long long settings_seed(void);
/* EMULATION_TRACE, 0: whether to tell on standard error when kernels begin and end. */
int settings_trace(void);

#endif
