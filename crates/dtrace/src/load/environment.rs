//! What providers and the plan of the maps are told of the options.

use bpf_runtime::needed::Limit;
use bpf_sys::features::Features;
use providers::Env;
use providers::method::FunctionMethod;

use crate::options::{FbtMeans, Options};

/// The environment for the plans of providers.
pub(crate) fn env<'a>(options: &Options, features: &'a Features, cpus: &'a [u32]) -> Env<'a> {
    let method = match options.fbtmeans {
        FbtMeans::Auto => None,
        FbtMeans::Multi => Some(FunctionMethod::Multi),
        FbtMeans::Fentry => Some(FunctionMethod::Fentry),
        FbtMeans::Kprobe => Some(FunctionMethod::Kprobe),
    };
    Env {
        features,
        cpus,
        only_cpu: options.cpu.map(|c| c as u32),
        method,
        single_attach_limit: options.fbtmax as usize,
        returns: options.pidreturn,
        follow: options.follow,
        first: 0,
    }
}

/// The sizes of a new session's maps, and its random key.
pub(crate) fn sizes(options: &Options) -> bpf_codegen::plan::Options {
    bpf_codegen::plan::Options {
        bufsize: options.bufsize.0,
        bufpolicy: options.bufpolicy,
        aggsize: options.aggsize.0,
        dynvarsize: options.dynvarsize.0,
        stacksize: options.stacksize.0,
        stack_key: crate::engine::stack_store::random_key(),
        nspec: options.nspec,
        specsize: options.specsize.0,
    }
}

/// The address space that a session needs besides its maps, at least.
const MORE_ADDRESSES: u64 = 4 << 20;

/// The memory that it needs besides them and besides what it has, at least: programs, rows, and
/// what its target takes.
const MORE_MEMORY: u64 = 3 << 20;

/// What limits the memory of a session: `ulimit -v`, and its cgroup or one above it. The latter has
/// other processes too.
pub(crate) fn memory_limits() -> Vec<Limit> {
    let own = proc::memory::own_memory();
    let addresses = Limit {
        name: "ulimit -v".into(),
        bytes: proc::memory::address_limit(),
        taken: own.mapped.saturating_add(MORE_ADDRESSES),
        mapped: true,
    };
    let of_cgroup = proc::memory::cgroup_limit().map(|limit| Limit {
        name: limit.file.display().to_string(),
        bytes: limit.bytes,
        // The numbers of a group may be late.
        taken: limit.held.max(own.anonymous).saturating_add(MORE_MEMORY),
        mapped: false,
    });
    of_cgroup.into_iter().chain([addresses]).collect()
}
