//! What stable probes add to a context switch, an I/O and a packet, beside the peer's equivalent.

use crate::run::{Running, Tools, figure};

struct Question {
    what: &'static str,
    /// The call of the traced loop.
    call: &'static str,
    ours: &'static str,
    theirs: &'static str,
    at_most: f64,
}

const QUESTIONS: [Question; 3] = [
    Question {
        what: "sched:::off-cpu, on-cpu: latency by execname",
        call: "switch",
        ours: "sched:::off-cpu { self->t = timestamp; } \
               sched:::on-cpu /self->t/ { @[execname] = quantize(timestamp - self->t); self->t = 0; }",
        theirs: "tracepoint:sched:sched_switch { @t[args.prev_pid] = nsecs; $t = @t[args.next_pid]; \
                 if ($t) { @[args.next_comm] = hist(nsecs - $t); delete(@t, args.next_pid); } }",
        at_most: 0.5,
    },
    Question {
        what: "io:::start, done: latency by device",
        call: "io",
        ours: "io:::start { t[arg0] = timestamp; } \
               io:::done /t[arg0]/ { @[args[1]->dev_statname] = quantize(timestamp - t[arg0]); t[arg0] = 0; }",
        theirs: "tracepoint:block:block_rq_issue { @t[args.dev, args.sector] = nsecs; } \
                 tracepoint:block:block_rq_complete /@t[args.dev, args.sector]/ \
                 { @[args.dev] = hist(nsecs - @t[args.dev, args.sector]); delete(@t, (args.dev, args.sector)); }",
        at_most: 0.5,
    },
    Question {
        what: "tcp:::send, receive: count by addresses",
        call: "packet",
        ours: "tcp:::send, tcp:::receive { @[args[2]->ip_saddr, args[2]->ip_daddr] = count(); }",
        theirs: "tracepoint:net:net_dev_queue, tracepoint:net:netif_receive_skb { $s = (struct sk_buff *)args.skbaddr; \
                 $i = (struct iphdr *)($s->head + $s->network_header); \
                 if ($i->protocol == 6) { @[ntop($i->saddr), ntop($i->daddr)] = count(); } }",
        at_most: 0.6,
    },
];

/// Measures each of them.
pub(crate) fn stable(tools: &Tools) {
    const ROUNDS: usize = 5;
    println!("\ncost of stable probes (ns a call, least of {ROUNDS} interleaved rounds)");
    println!("  {:<46} {:>8} {:>8} {:>8} {:>6}", "", "bare", "dtrace", "peer", "ratio");
    for Question { what, call, ours, theirs, at_most } in QUESTIONS {
        // `f64::min` prefers any number to NaN, and NaN is printed as not measured.
        let [mut bare, mut mine, mut peers] = [f64::NAN; 3];
        for _ in 0..ROUNDS {
            bare = bare.min(tools.loop_of(call));
            let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {ours}");
            if let Some(_tracer) = Running::start(tools.dtrace(&["-x", "switchrate=10ms"], &script)) {
                mine = mine.min(tools.loop_of(call));
            }
            let script = format!("BEGIN {{ printf(\"ready\\n\"); }} {theirs}");
            if let Some(_tracer) = tools.peer.as_ref().and_then(|p| Running::start(p.command(&script))) {
                peers = peers.min(tools.loop_of(call));
            }
        }
        let ratio = (mine - bare) / (peers - bare);
        let mark = match ratio {
            r if r.is_nan() => "",
            r if r <= at_most => "reached",
            _ => "MISSED",
        };
        println!(
            "  {what:<46} {:>8} {:>8} {:>8} {:>6}  (at most {at_most}) {mark}",
            figure(bare, 0),
            figure(mine, 0),
            figure(peers, 0),
            figure(ratio, 2)
        );
    }
}
