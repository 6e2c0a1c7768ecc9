# Counts the system calls of a command, by the library for C and Ruby's own Fiddle:
#
#     ruby count.rb 'ls -l /etc'
#
# LIBDTRACE_RS is the path of the library where the linker does not find it.

require "fiddle"
require "fiddle/import"

module DTrace
  extend Fiddle::Importer
  dlload ENV.fetch("LIBDTRACE_RS", "libdtrace_rs.so.0")

  Value = struct ["int form", "long number", "char *text", "size_t length", "char *name"]
  Event = struct ["int kind", "unsigned int cpu", "unsigned int pid", "unsigned int tid", "unsigned long time",
                  "char *probe", "char *name", "void *values", "size_t values_count", "long result",
                  "void *buckets", "size_t buckets_count", "char *text"]
  Problem = struct ["char *text", "char *message", "char *tag", "char *script", "unsigned int line",
                    "unsigned int column"]
  ROW = 2

  extern "void *dt_open()"
  extern "int dt_close(void *)"
  extern "int dt_program(void *, char *, char *)"
  extern "int dt_command(void *, char *)"
  extern "int dt_start(void *)"
  extern "int dt_work(void *, int)"
  extern "int dt_finish(void *, int *)"
  extern "void *dt_next(void *)"
  extern "void *dt_error(void *, size_t)"
end

def check(session, result)
  return result unless result.negative?

  abort "count: #{DTrace::Problem.new(DTrace.dt_error(session, 0)).text}"
end

def events(session)
  until (found = DTrace.dt_next(session)).null?
    yield DTrace::Event.new(found)
  end
end

session = DTrace.dt_open
check session, DTrace.dt_program(session, nil, "syscall:::entry /pid == $target/ { @[probefunc] = count(); }")
check session, DTrace.dt_command(session, ARGV.fetch(0))
check session, DTrace.dt_start(session)
events(session) { |event| warn event.text } while check(session, DTrace.dt_work(session, -1)) == 1
check session, DTrace.dt_finish(session, nil)
events(session) do |event|
  next unless event.kind == DTrace::ROW

  puts format("%-24s %d", DTrace::Value.new(event.values).text, event.result)
end
DTrace.dt_close(session)
