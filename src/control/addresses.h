/* SPDX-License-Identifier: BSD-3-Clause */
/* addresses.h - where ranks of other machines reach this one by TCP. */
#ifndef EPX_CONTROL_ADDRESSES_H
#define EPX_CONTROL_ADDRESSES_H

#include <stdint.h>
#include <sys/socket.h>

enum { EPX_MOST_ADDRESSES = 4, EPX_ADDRESS_TEXT = 80 };

/* What ranks tell each other, the same bytes on all machines. */
struct epx_address {
    uint16_t port;
    uint8_t is_v6;
    uint8_t bytes[16]; /* of IPv4 the first 4 */
    uint8_t padding[5];
};

/* Lists addresses of this machine's network interfaces that are up, IPv4 first; of the loopback
 * only if there is no other. `interface`: "all", the name of one, or an address. Returns
 * their number, -1 with errno set if the system does not tell. */
int epx_addresses_list(const char *interface, struct epx_address addresses[EPX_MOST_ADDRESSES]);

/* The address as the system wants it; returns its length. */
socklen_t epx_address_to_system(const struct epx_address *address, struct sockaddr_storage *system);
void epx_address_format(const struct epx_address *address, char text[EPX_ADDRESS_TEXT]);

#endif
