/*
 * Dynamic USDT for Python: providers and probes as objects. dtrace_usdt.h says what they are.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#define	PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <errno.h>

#include "dtrace_usdt.h"

typedef struct {
	PyObject_HEAD
	dtusdt_provider *provider;
} Provider;

typedef struct {
	PyObject_HEAD
	vectorcallfunc call;
	dtusdt_probe *probe;
	PyObject *provider;	/* keeps the probe */
	size_t nargs;
	const dtusdt_type *types;
} Probe;

static PyTypeObject probe_type;

/* --- Probe --- */

/* The word of an integer: its low bytes, with the sign or without, as C converts it. */
static int
word_of(PyObject *value, const dtusdt_type *type, uint64_t *word)
{
	if (value == Py_None && type->is_pointer) {
		*word = 0;
		return (0);
	}
	if (type->is_string && PyUnicode_Check(value)) {
		const char *text = PyUnicode_AsUTF8(value);

		*word = (uint64_t)(uintptr_t)text;
		return (text == NULL ? -1 : 0);
	}
	if (type->is_string && PyBytes_Check(value)) {
		*word = (uint64_t)(uintptr_t)PyBytes_AS_STRING(value);
		return (0);
	}
	if (!type->is_string && PyLong_Check(value)) {
		*word = PyLong_AsUnsignedLongLongMask(value);
		return (*word == (uint64_t)-1 && PyErr_Occurred() != NULL ? -1 : 0);
	}
	PyErr_Format(PyExc_TypeError, "the probe's argument is %s, not %.100s",
	    type->is_string ? "a str, bytes or None" : "an int", Py_TYPE(value)->tp_name);
	return (-1);
}

static PyObject *
probe_call(PyObject *object, PyObject *const *args, size_t flags, PyObject *names)
{
	Probe *self = (Probe *)object;
	Py_ssize_t count = PyVectorcall_NARGS(flags);
	uint64_t words[DTUSDT_MAX_ARGS];
	Py_ssize_t i;

	if (!dtusdt_enabled(self->probe))
		Py_RETURN_NONE;
	if (names != NULL && PyTuple_GET_SIZE(names) > 0) {
		PyErr_SetString(PyExc_TypeError, "a probe has no arguments with names");
		return (NULL);
	}
	if ((size_t)count != self->nargs) {
		PyErr_Format(PyExc_TypeError, "the probe has %zu arguments, not %zd", self->nargs, count);
		return (NULL);
	}
	for (i = 0; i < count; i++)
		if (word_of(args[i], &self->types[i], &words[i]) != 0)
			return (NULL);
	for (; i < DTUSDT_MAX_ARGS; i++)
		words[i] = 0;
	dtusdt_probe_fire(self->probe, words);
	Py_RETURN_NONE;
}

static PyObject *
probe_enabled(PyObject *object, void *unused)
{
	(void) unused;
	return (PyBool_FromLong(dtusdt_enabled(((Probe *)object)->probe)));
}

static void
probe_dealloc(PyObject *object)
{
	Py_XDECREF(((Probe *)object)->provider);
	PyObject_Free(object);
}

static PyGetSetDef probe_getset[] = {
	{ "enabled", probe_enabled, NULL, "True while somebody traces the probe.", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

static PyTypeObject probe_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "dtrace_usdt.Probe",
	.tp_basicsize = sizeof (Probe),
	.tp_dealloc = probe_dealloc,
	.tp_vectorcall_offset = offsetof(Probe, call),
	.tp_call = PyVectorcall_Call,
#ifdef Py_TPFLAGS_HAVE_VECTORCALL
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
#else
	.tp_flags = Py_TPFLAGS_DEFAULT | _Py_TPFLAGS_HAVE_VECTORCALL,
#endif
	.tp_doc = "A probe. A call fires it if somebody traces it.",
	.tp_getset = probe_getset,
};

/* --- Provider --- */

static int
provider_init(PyObject *object, PyObject *args, PyObject *keywords)
{
	static char *words[] = { "name", NULL };
	Provider *self = (Provider *)object;
	const char *name;

	if (!PyArg_ParseTupleAndKeywords(args, keywords, "s", words, &name))
		return (-1);
	if (self->provider != NULL) {
		PyErr_SetString(PyExc_ValueError, "the provider has its name");
		return (-1);
	}
	if ((self->provider = dtusdt_provider_new(name)) != NULL)
		return (0);
	if (errno == EINVAL)
		PyErr_Format(PyExc_ValueError,
		    "\"%.100s\" is no name of a provider: letters, digits and _, at most 53, the last one no digit", name);
	else
		PyErr_NoMemory();
	return (-1);
}

static int
is_made(Provider *self)
{
	if (self->provider == NULL)
		PyErr_SetString(PyExc_ValueError, "the provider was not initialized");
	return (self->provider != NULL);
}

static PyObject *
provider_probe(PyObject *object, PyObject *args)
{
	Provider *self = (Provider *)object;
	const char *name, *types;
	dtusdt_probe *made;
	Probe *probe;

	if (!PyArg_ParseTuple(args, "ss", &name, &types) || !is_made(self))
		return (NULL);
	if ((made = dtusdt_probe_add(self->provider, name, types)) == NULL) {
		int error = errno;

		switch (error) {
		case EINVAL:
			return (PyErr_Format(PyExc_ValueError,
			    "\"%.100s\" is no name of a probe: letters, digits, _ and -, at most 63", name));
		case EILSEQ:
			return (PyErr_Format(PyExc_ValueError, "\"%.200s\" are no types of arguments: integers, bool and pointers of C", types));
		case E2BIG:
			return (PyErr_Format(PyExc_ValueError, "a probe has at most %d arguments", DTUSDT_MAX_ARGS));
		case EEXIST:
			return (PyErr_Format(PyExc_ValueError, "there is a probe \"%.100s\"", name));
		case EBUSY:
			return (PyErr_Format(PyExc_ValueError, "the provider is enabled: probes are added before"));
		case ENOSPC:
			return (PyErr_Format(PyExc_ValueError, "the provider has too many probes"));
		default:
			return (PyErr_NoMemory());
		}
	}
	if ((probe = PyObject_New(Probe, &probe_type)) == NULL)
		return (NULL);
	probe->call = probe_call;
	probe->probe = made;
	probe->provider = object;
	Py_INCREF(object);
	probe->nargs = dtusdt_probe_args(made);
	probe->types = dtusdt_probe_types(made);
	return ((PyObject *)probe);
}

static PyObject *
provider_enable(PyObject *object, PyObject *args, PyObject *keywords)
{
	static char *words[] = { "directory", NULL };
	Provider *self = (Provider *)object;
	PyObject *path = NULL;
	int failed;

	if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", words, &path) || !is_made(self))
		return (NULL);
	if (path == Py_None)
		path = NULL;
	else if (path != NULL && !PyUnicode_FSConverter(path, &path))
		return (NULL);
	failed = dtusdt_provider_enable(self->provider, path == NULL ? NULL : PyBytes_AS_STRING(path));
	if (failed)
		PyErr_SetFromErrno(PyExc_OSError);
	Py_XDECREF(path);
	if (failed)
		return (NULL);
	Py_RETURN_NONE;
}

static void
provider_dealloc(PyObject *object)
{
	/* No probe is left, and none is being fired: a call holds its probe. */
	dtusdt_provider_free(((Provider *)object)->provider);
	Py_TYPE(object)->tp_free(object);
}

static PyMethodDef provider_methods[] = {
	{ "_probe", provider_probe, METH_VARARGS, NULL },
	{ "enable", (PyCFunction)(void (*)(void))provider_enable, METH_VARARGS | METH_KEYWORDS,
	    "enable(directory=None)\n--\n\nMakes the probes visible to tracers: in memory, or by an unlinked file of a directory." },
	{ NULL, NULL, 0, NULL }
};

static PyTypeObject provider_type = {
	PyVarObject_HEAD_INIT(NULL, 0)
	.tp_name = "dtrace_usdt._native.Provider",
	.tp_basicsize = sizeof (Provider),
	.tp_dealloc = provider_dealloc,
	.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.tp_methods = provider_methods,
	.tp_init = provider_init,
	.tp_new = PyType_GenericNew,
};

static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "_native", NULL, -1, NULL, NULL, NULL, NULL, NULL };

PyMODINIT_FUNC
PyInit__native(void)
{
	PyObject *made;

	if (PyType_Ready(&probe_type) < 0 || PyType_Ready(&provider_type) < 0 || (made = PyModule_Create(&module)) == NULL)
		return (NULL);
	Py_INCREF(&probe_type);
	Py_INCREF(&provider_type);
	if (PyModule_AddObject(made, "Probe", (PyObject *)&probe_type) < 0 ||
	    PyModule_AddObject(made, "Provider", (PyObject *)&provider_type) < 0) {
		Py_DECREF(made);
		return (NULL);
	}
	return (made);
}
