/* SPDX-License-Identifier: BSD-3-Clause */
/* addresses.c - where ranks of other machines reach this one by TCP. */
#include "control/addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static int is_any(const char *interface)
{
    return strcmp(interface, "all") == 0;
}

static int read_address(const struct sockaddr *system, struct epx_address *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    memset(address, 0, sizeof(*address));
    if (system && system->sa_family == AF_INET) {
        memcpy(&v4, system, sizeof(v4));
        memcpy(address->bytes, &v4.sin_addr, sizeof(v4.sin_addr));
        return 1;
    }
    if (!system || system->sa_family != AF_INET6)
        return 0;
    memcpy(&v6, system, sizeof(v6));
    memcpy(address->bytes, &v6.sin6_addr, sizeof(v6.sin6_addr));
    address->is_v6 = 1;
    return !IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr); /* which would need the name of an interface */
}

static void format_host(const struct epx_address *address, char *text, socklen_t length)
{
    if (!inet_ntop(address->is_v6 ? AF_INET6 : AF_INET, address->bytes, text, length))
        text[0] = '\0';
}

/* Whether the address of an entry is one to list. */
static int is_wanted(const struct ifaddrs *entry, const char *interface, int loopback,
                     const struct epx_address *address)
{
    char host[INET6_ADDRSTRLEN];

    if (!(entry->ifa_flags & IFF_UP))
        return 0;
    if (is_any(interface))
        return !(entry->ifa_flags & IFF_LOOPBACK) == !loopback;
    format_host(address, host, sizeof(host));
    return strcmp(entry->ifa_name, interface) == 0 || strcmp(host, interface) == 0;
}

static int list_some(const struct ifaddrs *entries, const char *interface, int loopback,
                     struct epx_address *addresses)
{
    struct epx_address address;
    int num = 0;

    for (int is_v6 = 0; is_v6 < 2; is_v6++)
        for (const struct ifaddrs *e = entries; e && num < EPX_MOST_ADDRESSES; e = e->ifa_next)
            if (read_address(e->ifa_addr, &address) && address.is_v6 == is_v6 &&
                is_wanted(e, interface, loopback, &address))
                addresses[num++] = address;
    return num;
}

int epx_addresses_list(const char *interface, struct epx_address addresses[EPX_MOST_ADDRESSES])
{
    struct ifaddrs *entries;
    int num;

    if (getifaddrs(&entries) != 0)
        return -1;
    num = list_some(entries, interface, 0, addresses);
    if (!num && is_any(interface))
        num = list_some(entries, interface, 1, addresses);
    freeifaddrs(entries);
    return num;
}

socklen_t epx_address_to_system(const struct epx_address *address, struct sockaddr_storage *system)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};

    memset(system, 0, sizeof(*system));
    if (address->is_v6) {
        memcpy(&v6.sin6_addr, address->bytes, sizeof(v6.sin6_addr));
        memcpy(system, &v6, sizeof(v6));
        return sizeof(v6);
    }
    memcpy(&v4.sin_addr, address->bytes, sizeof(v4.sin_addr));
    memcpy(system, &v4, sizeof(v4));
    return sizeof(v4);
}

void epx_address_format(const struct epx_address *address, char text[EPX_ADDRESS_TEXT])
{
    char host[INET6_ADDRSTRLEN];

    format_host(address, host, sizeof(host));
    snprintf(text, EPX_ADDRESS_TEXT, address->is_v6 ? "[%s]:%d" : "%s:%d", host, address->port);
}
