/*
 * Probes that a program makes while it runs (dynamic USDT), for programs that have no C code to put them into: interpreters, plug-ins,
 * rules that users load.
 *
 *	dtusdt_provider *provider = dtusdt_provider_new("myapp");
 *	dtusdt_probe *request = dtusdt_probe_add(provider, "request-start", "int id, char *path");
 *	dtusdt_provider_enable(provider, NULL);
 *	...
 *	DTUSDT_PROBE(request, id, path);
 *
 *	# dtrace -n 'myapp*:::request-start { printf("%d %s", arg0, copyinstr(arg1)); }'
 *
 * While nobody traces the probe, DTUSDT_PROBE() is two loads and a test, and its arguments are not evaluated. dtrace_usdt.c says how
 * tracers find the probes.
 *
 * A provider is built by one thread. Once it is enabled, any thread fires its probes. C99 or C++11; Linux; x86-64 and arm64.
 * On other machines dtusdt_provider_enable() fails with ENOTSUP, and the probes do nothing.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef DTRACE_USDT_H
#define	DTRACE_USDT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Arguments of a probe, at most: what tracers read. */
#define	DTUSDT_MAX_ARGS	12
/* Probes of a provider, at most. */
#define	DTUSDT_MAX_PROBES	4096

typedef struct dtusdt_provider dtusdt_provider;

/* Its members are for the macros and functions of this header. */
typedef struct dtusdt_probe {
	const volatile uint16_t *semaphore;
	void (*site)(void);
} dtusdt_probe;

/* What an argument is. */
typedef struct dtusdt_type {
	uint8_t size;		/* in bytes */
	uint8_t is_signed;
	uint8_t is_string;	/* char *: the address of a text that ends with a NUL */
	uint8_t is_pointer;
} dtusdt_type;

/*
 * A provider without probes. The name is a C identifier of at most 53 characters, and does not end with a digit: tracers
 * append the process id. NULL with errno: EINVAL (the name), ENOMEM.
 */
dtusdt_provider *dtusdt_provider_new(const char *name);

/*
 * Adds a probe to a provider that is not enabled. The name is a C identifier of at most 63 characters, where a hyphen may stand for two
 * underscores. The types are those of C, with or without names: "int id, char *path", "uint64_t", or "". They are integers, bool and
 * pointers. The probe is valid until dtusdt_provider_free(). NULL with errno: EINVAL (the name), EILSEQ (the types), E2BIG (too many
 * arguments), EEXIST (there is such a probe), ENOSPC (too many probes), EBUSY (the provider is enabled), ENOMEM.
 */
dtusdt_probe *dtusdt_probe_add(dtusdt_provider *provider, const char *name, const char *types);

/*
 * Makes the probes visible to tracers. The directory is where an unlinked file is made instead of a memfd; NULL: a memfd, and where the
 * system lets no memfd be executed, a file in the first of $XDG_RUNTIME_DIR, /dev/shm, /tmp and /var/tmp that can be. 0, or -1 with
 * errno; the program goes on without the probes then.
 */
int dtusdt_provider_enable(dtusdt_provider *provider, const char *directory);

/* The descriptor of the file while the provider is enabled, else -1. Tools find the file by it; the program may close it. */
int dtusdt_provider_fd(const dtusdt_provider *provider);

/* The semaphores of all probes, in the order in which they were added. NULL if the provider is not enabled. */
const volatile uint16_t *dtusdt_provider_semaphores(const dtusdt_provider *provider, size_t *count);

/* Removes the provider and its probes. No thread may be in one of them. */
void dtusdt_provider_free(dtusdt_provider *provider);

/* The number of arguments of a probe, and what they are. The probe must be one of this library's. */
size_t dtusdt_probe_args(const dtusdt_probe *probe);
const dtusdt_type *dtusdt_probe_types(const dtusdt_probe *probe);

/* Fires a probe with DTUSDT_MAX_ARGS words, whether it is traced or not. */
void dtusdt_probe_fire(const dtusdt_probe *probe, const uint64_t *words);

/* True while somebody traces the probe. */
static inline int
dtusdt_enabled(const dtusdt_probe *probe)
{
	return (__builtin_expect(*__atomic_load_n(&probe->semaphore, __ATOMIC_ACQUIRE) != 0, 0));
}

/* DTUSDT_PROBE(probe, arguments...): fires the probe if somebody traces it. At most 12 integers or pointers. */
#define	DTUSDT_PROBE(...) \
	DTUSDT_PICK_(__VA_ARGS__, DTUSDT_12_, DTUSDT_11_, DTUSDT_10_, DTUSDT_9_, DTUSDT_8_, DTUSDT_7_, DTUSDT_6_, \
	    DTUSDT_5_, DTUSDT_4_, DTUSDT_3_, DTUSDT_2_, DTUSDT_1_, DTUSDT_0_, 0)(__VA_ARGS__)
#define	DTUSDT_PICK_(p, a, b, c, d, e, f, g, h, i, j, k, l, name, ...)	name
#define	DTUSDT_FIRE_(p, types, words) \
	do { \
		const dtusdt_probe *dtusdt_p_ = (p); \
		if (dtusdt_enabled(dtusdt_p_)) \
			((void (*) types)dtusdt_p_->site) words; \
	} while (0)
#define	DTUSDT_W_(x)	((uintptr_t)(x))
#define	DTUSDT_T3_	uintptr_t, uintptr_t, uintptr_t
#define	DTUSDT_T6_	DTUSDT_T3_, DTUSDT_T3_
#define	DTUSDT_W3_(a, b, c)	DTUSDT_W_(a), DTUSDT_W_(b), DTUSDT_W_(c)
#define	DTUSDT_W6_(a, b, c, d, e, f)	DTUSDT_W3_(a, b, c), DTUSDT_W3_(d, e, f)
#define	DTUSDT_0_(p)	DTUSDT_FIRE_(p, (void), ())
#define	DTUSDT_1_(p, a)	DTUSDT_FIRE_(p, (uintptr_t), (DTUSDT_W_(a)))
#define	DTUSDT_2_(p, a, b)	DTUSDT_FIRE_(p, (uintptr_t, uintptr_t), (DTUSDT_W_(a), DTUSDT_W_(b)))
#define	DTUSDT_3_(p, a, b, c)	DTUSDT_FIRE_(p, (DTUSDT_T3_), (DTUSDT_W3_(a, b, c)))
#define	DTUSDT_4_(p, a, b, c, d) \
	DTUSDT_FIRE_(p, (DTUSDT_T3_, uintptr_t), (DTUSDT_W3_(a, b, c), DTUSDT_W_(d)))
#define	DTUSDT_5_(p, a, b, c, d, e) \
	DTUSDT_FIRE_(p, (DTUSDT_T3_, uintptr_t, uintptr_t), (DTUSDT_W3_(a, b, c), DTUSDT_W_(d), DTUSDT_W_(e)))
#define	DTUSDT_6_(p, a, b, c, d, e, f)	DTUSDT_FIRE_(p, (DTUSDT_T6_), (DTUSDT_W6_(a, b, c, d, e, f)))
#define	DTUSDT_7_(p, a, b, c, d, e, f, g) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, uintptr_t), (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W_(g)))
#define	DTUSDT_8_(p, a, b, c, d, e, f, g, h) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, uintptr_t, uintptr_t), (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W_(g), DTUSDT_W_(h)))
#define	DTUSDT_9_(p, a, b, c, d, e, f, g, h, i) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, DTUSDT_T3_), (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W3_(g, h, i)))
#define	DTUSDT_10_(p, a, b, c, d, e, f, g, h, i, j) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, DTUSDT_T3_, uintptr_t), \
	    (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W3_(g, h, i), DTUSDT_W_(j)))
#define	DTUSDT_11_(p, a, b, c, d, e, f, g, h, i, j, k) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, DTUSDT_T3_, uintptr_t, uintptr_t), \
	    (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W3_(g, h, i), DTUSDT_W_(j), DTUSDT_W_(k)))
#define	DTUSDT_12_(p, a, b, c, d, e, f, g, h, i, j, k, l) \
	DTUSDT_FIRE_(p, (DTUSDT_T6_, DTUSDT_T6_), (DTUSDT_W6_(a, b, c, d, e, f), DTUSDT_W6_(g, h, i, j, k, l)))

#ifdef __cplusplus
}
#endif

#endif	/* DTRACE_USDT_H */
