#!/bin/sh
# The safety run: every function of the kernel, a body that reads user memory, walks the stack and aggregates, on a busy machine, for
# a minute; on a kernel without kprobe_multi, functions that it is most busy with. The machine must answer all the while, the
# session must end by itself, and the kernel must not complain. In a guest, for nobody should run this where others work:
#
#   cargo build --release -p cli
#   cargo xtask vm --kernel 7.2 --timeout 400 -- sh xtask/safety.sh [SECONDS]
seconds=${1:-60}
out=$(mktemp -d)
probes='fbt:::entry'
case $(uname -r) in
6.1.*)
    probes='fbt::vfs_*:entry, fbt::do_sys_*:entry, fbt::path_*:entry, fbt::link_path_walk:entry, fbt::kmem_cache_*:entry,
        fbt::kfree:entry, fbt::_raw_spin_lock*:entry, fbt::mutex_*lock*:entry, fbt::ktime_get*:entry, fbt::hrtimer_*:entry,
        fbt::tick_*:entry, fbt::update_*:entry, fbt::try_to_wake_up:entry, fbt::handle_mm_fault:entry, fbt::filemap_*:entry,
        fbt::security_file*:entry'
    ;;
esac
load() {
    while :; do
        find /usr/lib -name '*.so' >/dev/null
        cat /etc/hostname /etc/passwd >/dev/null
    done
}
load & one=$!
load & two=$!
dtrace -q -Z -x aggsize=16m -n "BEGIN { b = timestamp; printf(\"begun\\n\"); }
    $probes { this->c = copyin(uregs[R_RSP], 8); @[stack(4), probefunc] = count(); @n = count(); }
    tick-${seconds}s { e = timestamp; exit(0); }
    END { printf(\"exit() after %d ms, END after %d\\n\", (e - b) / 1000000, (timestamp - b) / 1000000); trunc(@, 3); printa(\"%@d firings\\n\", @n); }" >"$out/out" 2>"$out/err" &
tracer=$!
# A process of every second or so: when it comes late, the machine is slow; when it does not come, it hangs.
answers=0 longest=0 before=$(cut -d. -f1 /proc/uptime)
while kill -0 $tracer 2>/dev/null; do
    sleep 1
    now=$(cut -d. -f1 /proc/uptime)
    answers=$((answers + 1))
    [ $((now - before)) -gt $longest ] && longest=$((now - before))
    before=$now
done
wait $tracer
status=$?
kill $one $two
sort "$out/err" | uniq -c | sort -rn | head -5
echo "$(grep -c ' drops\? on CPU' "$out/err") messages of drops"
cat "$out/out"
echo "status $status; $answers answers, the longest took $longest s"
complaints=$(dmesg | grep -cE 'BUG:|Oops|lockup|stall')
[ "$complaints" -eq 0 ] || dmesg | grep -E 'BUG:|Oops|lockup|stall'
rm -r "$out"
[ $status -eq 0 ] && [ "$complaints" -eq 0 ]
