/*
 * Dynamic USDT: see dtrace_usdt.h.
 *
 * A provider is an ELF file in memory, which the process maps. Nothing else knows of it: no daemon, no device. A tracer finds the
 * mapping in /proc/PID/maps or by the kernel's event of it, in every container, and reads the file by /proc/PID/map_files. It goes when the
 * process ends, execs or frees it.
 *
 *	memfd "dtrace:PROVIDER" (sealed)		mapped
 *	  ELF and program headers  ┐
 *	  .text: a site a probe    │ private, r-x	uprobes are set here, in the process's own copy
 *	  .stapsdt.base            │			one byte: gdb reads notes only beside it
 *	  .note.stapsdt            │			sites, semaphores, where arguments are: gdb, bpftrace, SystemTap
 *	  .note.dtrace             │			the definition as D text: what `dtrace -h` writes too
 *	  .symtab, names, sections ┘
 *	  .probes: semaphores	     private, rw-	the kernel counts them up in the process's own copy; it wants them
 *							private and writable, and sites private and not writable
 *
 * A site is a function of the C calling convention that does nothing, so the notes say that the arguments are in the registers of
 * arguments and on the stack. It is 16 bytes:
 *
 *	x86-64	endbr64; nop (the note is here); nop of 10 bytes (which kernels replace by a call); ret
 *	arm64	bti c; nop (the note); ret; nop
 *
 * The file is complete before it is mapped, and sealed then, so what tracers read cannot change. There is no page that is writable and
 * executable.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef _GNU_SOURCE
#define	_GNU_SOURCE
#endif
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dtrace_usdt.h"

#ifndef MFD_CLOEXEC
#define	MFD_CLOEXEC	1U
#define	MFD_ALLOW_SEALING	2U
#endif
#ifndef MFD_NOEXEC_SEAL
#define	MFD_NOEXEC_SEAL	8U	/* no exec(): all that vm.memfd_noexec=2 asks for. Mapping is another matter. */
#endif
#ifndef F_ADD_SEALS
#define	F_ADD_SEALS	1033
#define	F_SEAL_SEAL	1
#define	F_SEAL_SHRINK	2
#define	F_SEAL_GROW	4
#define	F_SEAL_WRITE	8
#endif

#define	MAX_PROVIDER	53
#define	MAX_NAME	63
#define	MAX_TYPES	1024
#define	MAX_DEFINITION	(63 << 10)	/* bytes of .note.dtrace that tracers accept */
#define	SITE	16

#if defined __x86_64__
#define	MACHINE	EM_X86_64
#define	NOP_AT	4
static const uint8_t site_code[SITE] = {
	0xf3, 0x0f, 0x1e, 0xfa, 0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3
};
#elif defined __aarch64__ && defined __AARCH64EL__
#define	MACHINE	EM_AARCH64
#define	NOP_AT	4
static const uint8_t site_code[SITE] = {
	0x5f, 0x24, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5, 0xc0, 0x03, 0x5f, 0xd6, 0x1f, 0x20, 0x03, 0xd5
};
#endif

struct probe {
	dtusdt_probe public_part;	/* first: a dtusdt_probe is one of these */
	char name[MAX_NAME + 1];
	char types[MAX_TYPES + 1];
	dtusdt_type args[DTUSDT_MAX_ARGS];
	size_t nargs;
};

struct dtusdt_provider {
	char name[MAX_PROVIDER + 1];
	struct probe **probes;
	size_t nprobes;
	size_t definition;	/* bytes of the D text, about */
	char *base;		/* NULL: not enabled */
	size_t length;
	size_t data;		/* where the semaphores are */
	int fd;
	dev_t dev;
	ino_t ino;
};

/* The semaphore and the site of probes that are not enabled. */
static const volatile uint16_t never;

static void
nothing(void)
{
}

/* --- names and types --- */

static int
is_letter(char c)
{
	return ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_');
}

static int
is_digit(char c)
{
	return (c >= '0' && c <= '9');
}

/* Copies an identifier; a hyphen becomes two underscores where that is allowed. */
static int
identifier(char *to, size_t most, const char *from, int hyphens)
{
	size_t n = 0;

	if (from == NULL || !is_letter(*from))
		return (-1);
	for (; *from != '\0'; from++) {
		int hyphen = hyphens && *from == '-';

		if (!hyphen && !is_letter(*from) && !is_digit(*from))
			return (-1);
		if (n + 1 + (size_t)hyphen > most)
			return (-1);
		to[n++] = hyphen ? '_' : *from;
		if (hyphen)
			to[n++] = '_';
	}
	to[n] = '\0';
	return (0);
}

static const struct { const char *name; uint8_t size; uint8_t is_signed; } known_types[] = {
	{ "int8_t", 1, 1 }, { "int16_t", 2, 1 }, { "int32_t", 4, 1 }, { "int64_t", 8, 1 },
	{ "uint8_t", 1, 0 }, { "uint16_t", 2, 0 }, { "uint32_t", 4, 0 }, { "uint64_t", 8, 0 },
	{ "size_t", 8, 0 }, { "ssize_t", 8, 1 }, { "intptr_t", 8, 1 }, { "uintptr_t", 8, 0 }, { "ptrdiff_t", 8, 1 },
	{ "pid_t", 4, 1 }, { "uid_t", 4, 0 }, { "gid_t", 4, 0 }, { "mode_t", 4, 0 }, { "off_t", 8, 1 },
	{ "time_t", 8, 1 }, { "bool", 1, 0 }, { "_Bool", 1, 0 },
};

/* A word of a declaration; its length. */
static size_t
word(const char *at)
{
	size_t n = 0;

	if (is_letter(*at))
		while (is_letter(at[n]) || is_digit(at[n]))
			n++;
	return (n);
}

static int
is(const char *at, size_t length, const char *text)
{
	return (strlen(text) == length && memcmp(at, text, length) == 0);
}

/* Reads one declaration up to a comma or the end. NULL if it is none. */
static const char *
declaration(const char *at, dtusdt_type *type)
{
	int chars = 0, shorts = 0, ints = 0, longs = 0, signs = 0, unsigneds = 0;
	int known = -1, tagged = 0, others = 0, stars = 0;

	for (;; ) {
		size_t n, i, count = sizeof (known_types) / sizeof (known_types[0]);

		while (*at == ' ' || *at == '\t')
			at++;
		if (*at == '\0' || *at == ',')
			break;
		if (*at == '*') {
			stars++;
			at++;
			continue;
		}
		if ((n = word(at)) == 0)
			return (NULL);
		if (is(at, n, "const") || is(at, n, "volatile")) {
			at += n;
			continue;
		}
		/* What is behind the type or a star is the name. */
		if (stars > 0 || others > 0 || known >= 0 || tagged == 2) {
			if (others++ > 0)
				return (NULL);
		} else if (is(at, n, "struct") || is(at, n, "union") || is(at, n, "enum")) {
			if (tagged++ > 0)
				return (NULL);
		} else if (tagged == 1) {
			tagged++;
		} else if (is(at, n, "char")) {
			chars++;
		} else if (is(at, n, "short")) {
			shorts++;
		} else if (is(at, n, "int")) {
			ints++;
		} else if (is(at, n, "long")) {
			longs++;
		} else if (is(at, n, "signed")) {
			signs++;
		} else if (is(at, n, "unsigned")) {
			unsigneds++;
		} else if (chars + shorts + ints + longs + signs + unsigneds > 0) {
			others++;
		} else if (is(at, n, "void")) {
			tagged = 2;
		} else {
			for (i = 0; i < count; i++)
				if (is(at, n, known_types[i].name))
					known = (int)i;
			/* Another type is one of a header that the tracer does not have. */
			if (known < 0)
				return (NULL);
		}
		at += n;
	}
	{
		int base = chars + shorts + ints + longs + signs + unsigneds;
		int good = base > 0 ? chars <= 1 && shorts <= 1 && ints <= 1 && longs <= 2 && signs + unsigneds <= 1 &&
		    (chars == 0 || shorts + ints + longs == 0) && (shorts == 0 || longs == 0) :
		    known >= 0 || tagged == 2;

		if (!good || (tagged == 2 && stars == 0))
			return (NULL);
		memset(type, 0, sizeof (*type));
		if (stars > 0) {
			type->size = 8;
			type->is_pointer = 1;
			type->is_string = stars == 1 && chars == 1 && unsigneds + signs == 0;
		} else if (known >= 0) {
			type->size = known_types[known].size;
			type->is_signed = known_types[known].is_signed;
		} else {
			type->size = chars ? 1 : shorts ? 2 : longs ? 8 : 4;
			/* A plain char is signed where the compiler makes it so. */
			type->is_signed = chars && !signs && !unsigneds ? (char)-1 < 0 : !unsigneds;
		}
	}
	return (at);
}

/* Reads the types of a probe. 0 or an error number. */
static int
read_types(struct probe *probe, const char *types)
{
	const char *at = types;

	while (*at == ' ' || *at == '\t')
		at++;
	if (*at == '\0' || strcmp(at, "void") == 0)
		return (0);
	if (strlen(at) > MAX_TYPES)
		return (EILSEQ);
	strcpy(probe->types, at);
	for (;; ) {
		dtusdt_type type;

		if ((at = declaration(at, &type)) == NULL)
			return (EILSEQ);
		if (probe->nargs == DTUSDT_MAX_ARGS)
			return (E2BIG);
		probe->args[probe->nargs++] = type;
		if (*at == '\0')
			return (0);
		at++;
	}
}

/* --- providers --- */

dtusdt_provider *
dtusdt_provider_new(const char *name)
{
	dtusdt_provider *provider = (dtusdt_provider *)calloc(1, sizeof (*provider));

	if (provider == NULL)
		return (NULL);
	provider->fd = -1;
	if (identifier(provider->name, MAX_PROVIDER, name, 0) != 0 || is_digit(name[strlen(name) - 1])) {
		free(provider);
		errno = EINVAL;
		return (NULL);
	}
	return (provider);
}

dtusdt_probe *
dtusdt_probe_add(dtusdt_provider *provider, const char *name, const char *types)
{
	struct probe *probe, **more;
	int error = 0;
	size_t i;

	if (provider->base != NULL)
		error = EBUSY;
	else if (provider->nprobes == DTUSDT_MAX_PROBES)
		error = ENOSPC;
	if (error != 0) {
		errno = error;
		return (NULL);
	}
	if ((probe = (struct probe *)calloc(1, sizeof (*probe))) == NULL)
		return (NULL);
	if (identifier(probe->name, MAX_NAME, name, 1) != 0)
		error = EINVAL;
	else
		error = read_types(probe, types != NULL ? types : "");
	for (i = 0; error == 0 && i < provider->nprobes; i++)
		if (strcmp(provider->probes[i]->name, probe->name) == 0)
			error = EEXIST;
	if (error == 0 && provider->definition + strlen(probe->types) + sizeof (probe->name) + 16 > MAX_DEFINITION)
		error = ENOSPC;
	if (error == 0) {
		more = (struct probe **)realloc(provider->probes, (provider->nprobes + 1) * sizeof (*more));
		if (more == NULL)
			error = ENOMEM;
		else
			provider->probes = more;
	}
	if (error != 0) {
		free(probe);
		errno = error;
		return (NULL);
	}
	provider->definition += strlen(probe->types) + strlen(probe->name) + 16;
	probe->public_part.semaphore = &never;
	probe->public_part.site = nothing;
	provider->probes[provider->nprobes++] = probe;
	return (&probe->public_part);
}

size_t
dtusdt_probe_args(const dtusdt_probe *probe)
{
	return (((const struct probe *)probe)->nargs);
}

const dtusdt_type *
dtusdt_probe_types(const dtusdt_probe *probe)
{
	return (((const struct probe *)probe)->args);
}

int
dtusdt_provider_fd(const dtusdt_provider *provider)
{
	return (provider->fd);
}

const volatile uint16_t *
dtusdt_provider_semaphores(const dtusdt_provider *provider, size_t *count)
{
	*count = provider->nprobes;
	return (provider->base == NULL ? NULL : (const volatile uint16_t *)(provider->base + provider->data));
}

void
dtusdt_probe_fire(const dtusdt_probe *probe, const uint64_t *w)
{
	typedef uint64_t u;

	/* A site takes no notice of arguments, so more than it has do no harm. */
	if (dtusdt_probe_args(probe) <= 6)
		((void (*)(u, u, u, u, u, u))probe->site)(w[0], w[1], w[2], w[3], w[4], w[5]);
	else
		((void (*)(u, u, u, u, u, u, u, u, u, u, u, u))probe->site)
		    (w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11]);
}

#ifdef MACHINE

/* --- the file --- */

/* A buffer that grows. Once memory was lacking it takes nothing more. */
struct buffer {
	char *bytes;
	size_t used;
	size_t room;
	int failed;
};

static void
put(struct buffer *b, const void *bytes, size_t length)
{
	if (!b->failed && b->used + length > b->room) {
		size_t room = 2 * (b->used + length) + 256;
		char *more = (char *)realloc(b->bytes, room);

		if (more == NULL) {
			b->failed = 1;
		} else {
			b->bytes = more;
			b->room = room;
		}
	}
	if (b->failed)
		return;
	if (length > 0)
		memcpy(b->bytes + b->used, bytes, length);
	b->used += length;
}

static void
put_text(struct buffer *b, const char *text)
{
	put(b, text, strlen(text));
}

static void
put_u32(struct buffer *b, uint32_t value)
{
	put(b, &value, sizeof (value));
}

static void
put_u64(struct buffer *b, uint64_t value)
{
	put(b, &value, sizeof (value));
}

static void
align(struct buffer *b, size_t to)
{
	while (!b->failed && b->used % to != 0)
		put(b, "", 1);
}

/* A note around a descriptor. */
static void
put_note(struct buffer *b, const char *owner, uint32_t type, const struct buffer *descriptor)
{
	b->failed |= descriptor->failed;
	put_u32(b, (uint32_t)strlen(owner) + 1);
	put_u32(b, (uint32_t)descriptor->used);
	put_u32(b, type);
	put(b, owner, strlen(owner) + 1);
	align(b, 4);
	put(b, descriptor->bytes, descriptor->used);
	align(b, 4);
}

/* Where an argument is, as SystemTap writes it. */
static void
put_operand(struct buffer *b, const dtusdt_type *type, size_t n)
{
	char text[48];
#if defined __x86_64__
	static const char *const registers[6][4] = {
		{ "dil", "di", "edi", "rdi" }, { "sil", "si", "esi", "rsi" }, { "dl", "dx", "edx", "rdx" },
		{ "cl", "cx", "ecx", "rcx" }, { "r8b", "r8w", "r8d", "r8" }, { "r9b", "r9w", "r9d", "r9" },
	};
	int width = type->size == 1 ? 0 : type->size == 2 ? 1 : type->size == 4 ? 2 : 3;

	/* Where the site is, the return address is on the top of the stack. */
	if (n < 6)
		snprintf(text, sizeof (text), "%s%d@%%%s", type->is_signed ? "-" : "", type->size, registers[n][width]);
	else
		snprintf(text, sizeof (text), "%s%d@%d(%%rsp)", type->is_signed ? "-" : "", type->size, (int)(n - 5) * 8);
#else
	if (n < 8)
		snprintf(text, sizeof (text), "%s%d@x%d", type->is_signed ? "-" : "", type->size, (int)n);
	else
		snprintf(text, sizeof (text), "%s%d@[sp, %d]", type->is_signed ? "-" : "", type->size, (int)(n - 8) * 8);
#endif
	if (n > 0)
		put_text(b, " ");
	put_text(b, text);
}

/* Appends the notes of the sites. */
static void
put_sites(struct buffer *b, const dtusdt_provider *provider, uint64_t text, uint64_t base, uint64_t data)
{
	struct buffer note = { NULL, 0, 0, 0 };
	size_t i, n;

	for (i = 0; i < provider->nprobes; i++) {
		const struct probe *probe = provider->probes[i];

		note.used = 0;
		put_u64(&note, text + i * SITE + NOP_AT);
		put_u64(&note, base);
		put_u64(&note, data + i * sizeof (uint16_t));
		put(&note, provider->name, strlen(provider->name) + 1);
		put(&note, probe->name, strlen(probe->name) + 1);
		for (n = 0; n < probe->nargs; n++)
			put_operand(&note, &probe->args[n], n);
		put(&note, "", 1);
		put_note(b, "stapsdt", 3, &note);
	}
	free(note.bytes);
}

/* Appends the note with the definition. */
static void
put_definition(struct buffer *b, const dtusdt_provider *provider)
{
	struct buffer note = { NULL, 0, 0, 0 };
	size_t i;

	put_u32(&note, 1);
	put(&note, provider->name, strlen(provider->name) + 1);
	put_text(&note, "provider ");
	put_text(&note, provider->name);
	put_text(&note, " {");
	for (i = 0; i < provider->nprobes; i++) {
		put_text(&note, " probe ");
		put_text(&note, provider->probes[i]->name);
		put_text(&note, "(");
		put_text(&note, provider->probes[i]->types);
		put_text(&note, ");");
	}
	put(&note, " };\n", 5);
	put_note(b, "dtrace", 1, &note);
	free(note.bytes);
}

enum { NONE, TEXT, BASE, PROBES, STAPSDT, DEFINITION, SYMTAB, STRTAB, SHSTRTAB, SECTIONS };

/* Makes the file. `length` and `data` of the provider are set. */
static void
build(struct buffer *b, dtusdt_provider *provider)
{
	static const char names[] = "\0.text\0.stapsdt.base\0.probes\0.note.stapsdt\0.note.dtrace\0.symtab\0.strtab\0.shstrtab";
	static const char zeros[64];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count = provider->nprobes, i;
	size_t semaphores = count * sizeof (uint16_t);
	size_t text = sizeof (Elf64_Ehdr) + 2 * sizeof (Elf64_Phdr), at, string = 1;
	struct buffer notes = { NULL, 0, 0, 0 };
	Elf64_Shdr s[SECTIONS];
	Elf64_Ehdr e;
	Elf64_Phdr p[2];

	memset(s, 0, sizeof (s));
	memset(&e, 0, sizeof (e));
	memset(p, 0, sizeof (p));
	text = (text + SITE - 1) / SITE * SITE;
	/* Notes name the place of the semaphores, and their length does not depend on it. */
	put_sites(&notes, provider, text, 0, 0);
	put_definition(&notes, provider);
	at = notes.used;
	b->failed |= notes.failed;
	free(notes.bytes);
	at += text + count * (SITE + sizeof (Elf64_Sym) + MAX_NAME + 1) + sizeof (Elf64_Sym) + sizeof (s) + sizeof (names) + 64;
	provider->data = (at + page - 1) / page * page;
	provider->length = provider->data + (semaphores + page) / page * page;

	memcpy(e.e_ident, ELFMAG, SELFMAG);
	e.e_ident[EI_CLASS] = ELFCLASS64;
	e.e_ident[EI_DATA] = ELFDATA2LSB;
	e.e_ident[EI_VERSION] = EV_CURRENT;
	e.e_type = ET_DYN;
	e.e_machine = MACHINE;
	e.e_version = EV_CURRENT;
	e.e_phoff = sizeof (e);
	e.e_ehsize = sizeof (e);
	e.e_phentsize = sizeof (p[0]);
	e.e_phnum = 2;
	e.e_shentsize = sizeof (s[0]);
	e.e_shnum = SECTIONS;
	e.e_shstrndx = SHSTRTAB;
	p[0].p_type = p[1].p_type = PT_LOAD;
	p[0].p_align = p[1].p_align = page;
	p[0].p_flags = PF_R | PF_X;
	p[0].p_filesz = p[0].p_memsz = provider->data;
	p[1].p_flags = PF_R | PF_W;
	p[1].p_offset = p[1].p_vaddr = p[1].p_paddr = provider->data;
	p[1].p_filesz = p[1].p_memsz = provider->length - provider->data;
	put(b, &e, sizeof (e));
	put(b, p, sizeof (p));

	align(b, SITE);
	s[TEXT].sh_type = SHT_PROGBITS;
	s[TEXT].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
	s[TEXT].sh_offset = s[TEXT].sh_addr = b->used;
	s[TEXT].sh_addralign = SITE;
	for (i = 0; i < count; i++)
		put(b, site_code, SITE);
	s[TEXT].sh_size = b->used - s[TEXT].sh_offset;

	s[BASE].sh_type = SHT_PROGBITS;
	s[BASE].sh_flags = SHF_ALLOC;
	s[BASE].sh_offset = s[BASE].sh_addr = b->used;
	s[BASE].sh_size = s[BASE].sh_addralign = 1;
	put(b, "", 1);

	s[PROBES].sh_type = SHT_PROGBITS;
	s[PROBES].sh_flags = SHF_ALLOC | SHF_WRITE;
	s[PROBES].sh_offset = s[PROBES].sh_addr = provider->data;
	s[PROBES].sh_size = semaphores;
	s[PROBES].sh_addralign = sizeof (uint16_t);

	align(b, 4);
	s[STAPSDT].sh_type = SHT_NOTE;
	s[STAPSDT].sh_offset = b->used;
	s[STAPSDT].sh_addralign = 4;
	put_sites(b, provider, text, s[BASE].sh_addr, provider->data);
	s[STAPSDT].sh_size = b->used - s[STAPSDT].sh_offset;

	s[DEFINITION].sh_type = SHT_NOTE;
	s[DEFINITION].sh_offset = b->used;
	s[DEFINITION].sh_addralign = 4;
	put_definition(b, provider);
	s[DEFINITION].sh_size = b->used - s[DEFINITION].sh_offset;

	align(b, 8);
	s[SYMTAB].sh_type = SHT_SYMTAB;
	s[SYMTAB].sh_offset = b->used;
	s[SYMTAB].sh_addralign = 8;
	s[SYMTAB].sh_entsize = sizeof (Elf64_Sym);
	s[SYMTAB].sh_link = STRTAB;
	s[SYMTAB].sh_info = 1;
	put(b, zeros, sizeof (Elf64_Sym));
	for (i = 0; i < count; i++) {
		Elf64_Sym symbol;

		memset(&symbol, 0, sizeof (symbol));
		symbol.st_name = (Elf64_Word)string;
		symbol.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
		symbol.st_shndx = TEXT;
		symbol.st_value = text + i * SITE;
		symbol.st_size = SITE;
		put(b, &symbol, sizeof (symbol));
		string += strlen(provider->probes[i]->name) + 1;
	}
	s[SYMTAB].sh_size = b->used - s[SYMTAB].sh_offset;

	s[STRTAB].sh_type = SHT_STRTAB;
	s[STRTAB].sh_offset = b->used;
	s[STRTAB].sh_addralign = 1;
	put(b, "", 1);
	for (i = 0; i < count; i++)
		put(b, provider->probes[i]->name, strlen(provider->probes[i]->name) + 1);
	s[STRTAB].sh_size = b->used - s[STRTAB].sh_offset;

	s[SHSTRTAB].sh_type = SHT_STRTAB;
	s[SHSTRTAB].sh_offset = b->used;
	s[SHSTRTAB].sh_size = sizeof (names);
	s[SHSTRTAB].sh_addralign = 1;
	put(b, names, sizeof (names));

	for (i = TEXT, at = 1; i < SECTIONS; i++) {
		s[i].sh_name = (Elf64_Word)at;
		at += strlen(names + at) + 1;
	}
	align(b, 8);
	e.e_shoff = b->used;
	put(b, s, sizeof (s));
	if (!b->failed)
		memcpy(b->bytes, &e, sizeof (e));
}

/* --- mapping it --- */

static int
write_all(int fd, const struct buffer *b, size_t length)
{
	size_t done = 0;

	while (done < b->used) {
		ssize_t n = pwrite(fd, b->bytes + done, b->used - done, (off_t)done);

		if (n < 0 && errno != EINTR)
			return (-1);
		done += n < 0 ? 0 : (size_t)n;
	}
	/* Where a file system is full, the fault would come when a semaphore is written. */
	return ((errno = posix_fallocate(fd, 0, (off_t)length)) == 0 ? 0 : -1);
}

/* Maps the file for the process. */
static int
map(dtusdt_provider *provider, int fd)
{
	size_t data = provider->data, length = provider->length;
	char *base = (char *)mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error;

	if (base == MAP_FAILED)
		return (-1);
	/* The semaphores first: a tracer that sees the code finds them. */
	if (mmap(base + data, length - data, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, (off_t)data) != MAP_FAILED &&
	    mmap(base, data, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED) {
		provider->base = base;
		return (0);
	}
	error = errno;
	(void) munmap(base, length);
	errno = error;
	return (-1);
}

/* A sealed file in memory. -1: there is none that can be mapped. */
static int
in_memory(dtusdt_provider *provider, const struct buffer *b)
{
	char name[MAX_PROVIDER + 8];
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	snprintf(name, sizeof (name), "dtrace:%s", provider->name);
	fd = (int)syscall(SYS_memfd_create, name, flags | MFD_NOEXEC_SEAL);
	/* Kernels before 6.3 do not know the flag. */
	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_memfd_create, name, flags);
	if (fd < 0)
		return (-1);
	if (write_all(fd, b, provider->length) == 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0 &&
	    map(provider, fd) == 0)
		return (fd);
	(void) close(fd);
	return (-1);
}

/* A file of a directory, which nobody else finds: it is removed before it is written. */
static int
in_directory(dtusdt_provider *provider, const struct buffer *b, const char *directory)
{
	char path[512];
	int fd, reading, length;

	length = snprintf(path, sizeof (path), "%s/dtrace:%s.XXXXXX", directory, provider->name);
	if (length < 0 || (size_t)length >= sizeof (path)) {
		errno = ENAMETOOLONG;
		return (-1);
	}
	if ((fd = mkostemp(path, O_CLOEXEC)) < 0)
		return (-1);
	/* Opened anew, so that no writable descriptor of the file is left. */
	reading = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	(void) unlink(path);
	if (reading >= 0 && fchmod(fd, 0400) == 0 && write_all(fd, b, provider->length) == 0) {
		(void) close(fd);
		if (map(provider, reading) == 0)
			return (reading);
	} else {
		(void) close(fd);
	}
	if (reading >= 0)
		(void) close(reading);
	return (-1);
}

static int
create(dtusdt_provider *provider, const struct buffer *b, const char *directory)
{
	const char *places[] = { NULL, "/dev/shm", "/tmp", "/var/tmp" };
	size_t i;
	int fd;

	if (directory != NULL)
		return (in_directory(provider, b, directory));
	if ((fd = in_memory(provider, b)) >= 0)
		return (fd);
	places[0] = secure_getenv("XDG_RUNTIME_DIR");
	for (i = 0; i < sizeof (places) / sizeof (places[0]); i++)
		if (places[i] != NULL && *places[i] == '/' && (fd = in_directory(provider, b, places[i])) >= 0)
			return (fd);
	return (-1);
}

int
dtusdt_provider_enable(dtusdt_provider *provider, const char *directory)
{
	struct buffer file = { NULL, 0, 0, 0 };
	struct stat st;
	size_t i;

	if (provider->base != NULL) {
		errno = EBUSY;
		return (-1);
	}
	build(&file, provider);
	if (file.failed) {
		free(file.bytes);
		errno = ENOMEM;
		return (-1);
	}
	provider->fd = create(provider, &file, directory);
	free(file.bytes);
	if (provider->fd < 0)
		return (-1);
	if (fstat(provider->fd, &st) == 0) {
		provider->dev = st.st_dev;
		provider->ino = st.st_ino;
	}
	for (i = 0; i < provider->nprobes; i++) {
		dtusdt_probe *probe = &provider->probes[i]->public_part;
		const volatile uint16_t *semaphores = (const volatile uint16_t *)(provider->base + provider->data);
		char *site = provider->base + (sizeof (Elf64_Ehdr) + 2 * sizeof (Elf64_Phdr) + SITE - 1) / SITE * SITE + i * SITE;

		/* Other threads see a semaphore that counts only with its site. */
		__atomic_store_n(&probe->site, (void (*)(void))(uintptr_t)site, __ATOMIC_RELEASE);
		__atomic_store_n(&probe->semaphore, semaphores + i, __ATOMIC_RELEASE);
	}
	return (0);
}

#else

int
dtusdt_provider_enable(dtusdt_provider *provider, const char *directory)
{
	(void) provider;
	(void) directory;
	errno = ENOTSUP;
	return (-1);
}

#endif

void
dtusdt_provider_free(dtusdt_provider *provider)
{
	struct stat st;
	size_t i;

	if (provider == NULL)
		return;
	for (i = 0; i < provider->nprobes; i++)
		free(provider->probes[i]);
	free(provider->probes);
	if (provider->base != NULL)
		(void) munmap(provider->base, provider->length);
	/* A program that closes all descriptors (a daemon) may have another file there. */
	if (provider->fd >= 0 && fstat(provider->fd, &st) == 0 && st.st_dev == provider->dev && st.st_ino == provider->ino)
		(void) close(provider->fd);
	free(provider);
}
