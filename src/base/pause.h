/* SPDX-License-Identifier: BSD-3-Clause */
/* pause.h - what a wait does between its passes, so that others run. */
#ifndef EPX_BASE_PAUSE_H
#define EPX_BASE_PAUSE_H

/* After so many passes in a row in which nothing moved; 0 = something did. Lets the user's messages
 * move, by what was given for that. */
void epx_pause(int idle_passes);
void epx_pause_progresses(void (*progress)(void));
/* For a thread of the library, which calls no MPI. */
void epx_pause_in_thread(int idle_passes);
/* For a caller that decides itself whether it makes another pass, as a loop of EPX_Test does: after
 * each pass, with whether anything moved. */
void epx_pause_between_calls(int moved);

#endif
