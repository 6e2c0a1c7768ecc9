/*
 * Dynamic USDT for Node.js: what index.js calls. dtrace_usdt.h says what the functions are.
 *
 * The semaphores of a provider are given to JavaScript as an ArrayBuffer over the memory of the kernel's counters. It is detached before the memory is
 * unmapped, and a provider that is not closed is never unmapped.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#define	NAPI_VERSION	8
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <node_api.h>

#include "dtrace_usdt.h"

/* What a handle is. */
struct provider {
	dtusdt_provider *provider;	/* NULL: closed */
	dtusdt_probe **probes;
	size_t count;
	napi_ref semaphores;
};

static const napi_type_tag tag = { 0x6474757364740001ULL, 0x9f3c51a2b7e84d06ULL };

static napi_value
fail(napi_env env, const char *format, const char *text)
{
	char message[400];

	snprintf(message, sizeof (message), format, text);
	(void) napi_throw_type_error(env, NULL, message);
	return (NULL);
}

/* The arguments of a call, of which the first is a handle. NULL: an error was thrown. */
static struct provider *
arguments(napi_env env, napi_callback_info info, size_t count, napi_value *args)
{
	struct provider *self = NULL;
	size_t there = count;
	bool is_ours = false;

	if (napi_get_cb_info(env, info, &there, args, NULL, NULL) != napi_ok || there < count ||
	    napi_check_object_type_tag(env, args[0], &tag, &is_ours) != napi_ok || !is_ours ||
	    napi_unwrap(env, args[0], (void **)&self) != napi_ok) {
		(void) fail(env, "%s", "the arguments are not those of this function");
		return (NULL);
	}
	if (self->provider == NULL) {
		(void) fail(env, "%s", "the provider is closed");
		return (NULL);
	}
	return (self);
}

/* A text, to be freed. NULL: it is none. */
static char *
text_of(napi_env env, napi_value value, size_t *length)
{
	char *text;

	if (napi_get_value_string_utf8(env, value, NULL, 0, length) != napi_ok || (text = (char *)malloc(*length + 1)) == NULL)
		return (NULL);
	if (napi_get_value_string_utf8(env, value, text, *length + 1, length) == napi_ok)
		return (text);
	free(text);
	return (NULL);
}

static void
collected(napi_env env, void *data, void *hint)
{
	struct provider *self = (struct provider *)data;

	(void) hint;
	/* The memory of semaphores may still be looked at, so a provider that was not closed stays. */
	if (self->semaphores != NULL)
		(void) napi_delete_reference(env, self->semaphores);
	else
		dtusdt_provider_free(self->provider);
	free(self->probes);
	free(self);
}

static napi_value
create(napi_env env, napi_callback_info info)
{
	struct provider *self;
	napi_value arg, made;
	size_t count = 1, length;
	char *name;

	if (napi_get_cb_info(env, info, &count, &arg, NULL, NULL) != napi_ok || count < 1 ||
	    (name = text_of(env, arg, &length)) == NULL)
		return (fail(env, "%s", "the name of a provider is a string"));
	if ((self = (struct provider *)calloc(1, sizeof (*self))) == NULL ||
	    (self->provider = strlen(name) == length ? dtusdt_provider_new(name) : NULL) == NULL) {
		(void) fail(env, "\"%.100s\" is no name of a provider: letters, digits and _, at most 53, the last one no digit", name);
		free(self);
		free(name);
		return (NULL);
	}
	free(name);
	if (napi_create_object(env, &made) != napi_ok || napi_type_tag_object(env, made, &tag) != napi_ok ||
	    napi_wrap(env, made, self, collected, NULL, NULL) != napi_ok) {
		dtusdt_provider_free(self->provider);
		free(self);
		return (fail(env, "%s", "the provider cannot be made"));
	}
	return (made);
}

static napi_value
add(napi_env env, napi_callback_info info)
{
	napi_value args[3];
	struct provider *self = arguments(env, info, 3, args);
	size_t name_length, types_length;
	char *name, *types;
	dtusdt_probe *made = NULL, **more;

	if (self == NULL)
		return (NULL);
	name = text_of(env, args[1], &name_length);
	types = text_of(env, args[2], &types_length);
	more = (dtusdt_probe **)realloc(self->probes, (self->count + 1) * sizeof (*more));
	if (more != NULL)
		self->probes = more;
	errno = name == NULL || types == NULL || more == NULL ? ENOMEM : strlen(name) != name_length ? EINVAL :
	    strlen(types) != types_length ? EILSEQ : 0;
	if (errno == 0)
		made = dtusdt_probe_add(self->provider, name, types);
	if (made != NULL) {
		self->probes[self->count++] = made;
	} else {
		switch (errno) {
		case EINVAL:
			(void) fail(env, "\"%.100s\" is no name of a probe: letters, digits, _ and -, at most 63", name);
			break;
		case EILSEQ:
			(void) fail(env, "\"%.200s\" are no types of arguments: integers, bool and pointers of C", types);
			break;
		case E2BIG:
			(void) fail(env, "the probe \"%.100s\" has more than 12 arguments", name);
			break;
		case EEXIST:
			(void) fail(env, "there is a probe \"%.100s\"", name);
			break;
		case EBUSY:
			(void) fail(env, "%s", "the provider is enabled: probes are added before");
			break;
		default:
			(void) fail(env, "the probe cannot be made: %.100s", strerror(errno));
		}
	}
	free(name);
	free(types);
	return (NULL);
}

static napi_value
enable(napi_env env, napi_callback_info info)
{
	napi_value args[2], semaphores;
	struct provider *self = arguments(env, info, 2, args);
	size_t length = 0, count;
	char *directory;
	int failed;

	if (self == NULL)
		return (NULL);
	directory = text_of(env, args[1], &length);
	failed = dtusdt_provider_enable(self->provider, directory);
	free(directory);
	if (failed)
		return (fail(env, "the provider cannot be enabled: %.100s", strerror(errno)));
	/* The kernel writes there, and JavaScript may: that would only hide or show its own probes. */
	if (napi_create_external_arraybuffer(env, (void *)(uintptr_t)dtusdt_provider_semaphores(self->provider, &count),
	    self->count * sizeof (uint16_t), NULL, NULL, &semaphores) != napi_ok ||
	    napi_create_reference(env, semaphores, 1, &self->semaphores) != napi_ok)
		return (fail(env, "%s", "this version of Node.js lets no memory be shared with it"));
	return (semaphores);
}

/* The word of an argument; `text` is what is to be freed. */
static int
word_of(napi_env env, napi_value value, const dtusdt_type *type, uint64_t *word, char **text)
{
	napi_valuetype kind;
	bool flag, lossless;
	size_t length;
	int64_t integer;
	double number;

	*word = 0;
	if (napi_typeof(env, value, &kind) != napi_ok)
		return (-1);
	switch (kind) {
	case napi_string:
		if (type->is_string && (*text = text_of(env, value, &length)) != NULL) {
			*word = (uint64_t)(uintptr_t)*text;
			return (0);
		}
		break;
	case napi_null:
	case napi_undefined:
		if (type->is_pointer)
			return (0);
		break;
	case napi_boolean:
		if (!type->is_pointer && napi_get_value_bool(env, value, &flag) == napi_ok) {
			*word = flag;
			return (0);
		}
		break;
	case napi_number:
		if (type->is_string || napi_get_value_double(env, value, &number) != napi_ok || number != trunc(number) ||
		    fabs(number) >= 18446744073709551616.0)
			break;
		*word = number < 0 ? (uint64_t)(number < -9223372036854775808.0 ? INT64_MIN : (int64_t)number) : (uint64_t)number;
		return (0);
	case napi_bigint:
		if (!type->is_string && napi_get_value_bigint_int64(env, value, &integer, &lossless) == napi_ok) {
			*word = (uint64_t)integer;
			return (0);
		}
		break;
	default:
		break;
	}
	return (-1);
}

static napi_value
fire(napi_env env, napi_callback_info info)
{
	napi_value args[3], value;
	struct provider *self = arguments(env, info, 3, args);
	char *texts[DTUSDT_MAX_ARGS] = { NULL };
	uint64_t words[DTUSDT_MAX_ARGS] = { 0 };
	const dtusdt_type *types;
	uint32_t index, count, i;
	int failed = 0;

	if (self == NULL)
		return (NULL);
	if (napi_get_value_uint32(env, args[1], &index) != napi_ok || index >= self->count ||
	    napi_get_array_length(env, args[2], &count) != napi_ok)
		return (fail(env, "%s", "the arguments are not those of this function"));
	if (count != dtusdt_probe_args(self->probes[index]))
		return (fail(env, "%s", "the probe has another number of arguments"));
	types = dtusdt_probe_types(self->probes[index]);
	for (i = 0; i < count && !failed; i++) {
		failed = napi_get_element(env, args[2], i, &value) != napi_ok || word_of(env, value, &types[i], &words[i], &texts[i]) != 0;
		if (failed)
			(void) fail(env, "the probe's argument is %s",
			    types[i].is_string ? "a string or null" : "an integer (a Number without a fraction, a BigInt or a Boolean)");
	}
	if (!failed)
		dtusdt_probe_fire(self->probes[index], words);
	for (i = 0; i < DTUSDT_MAX_ARGS; i++)
		free(texts[i]);
	return (NULL);
}

static napi_value
finish(napi_env env, napi_callback_info info)
{
	napi_value arg, semaphores;
	struct provider *self = arguments(env, info, 1, &arg);

	if (self == NULL)
		return (NULL);
	if (self->semaphores != NULL) {
		/* Without detaching it, a view of it could read what is unmapped. */
		if (napi_get_reference_value(env, self->semaphores, &semaphores) != napi_ok ||
		    napi_detach_arraybuffer(env, semaphores) != napi_ok)
			return (fail(env, "%s", "the memory of the provider is in use"));
		(void) napi_delete_reference(env, self->semaphores);
		self->semaphores = NULL;
	}
	dtusdt_provider_free(self->provider);
	self->provider = NULL;
	self->count = 0;
	return (NULL);
}

static napi_value
init(napi_env env, napi_value exports)
{
	static const struct { const char *name; napi_callback call; } functions[] = {
		{ "create", create }, { "add", add }, { "enable", enable }, { "fire", fire }, { "close", finish },
	};
	size_t i;

	for (i = 0; i < sizeof (functions) / sizeof (functions[0]); i++) {
		napi_value function;

		if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].call, NULL, &function) != napi_ok ||
		    napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
			return (NULL);
	}
	return (exports);
}

NAPI_MODULE(dtrace_usdt, init)
