//! Settings that a session rejects, because ignoring them would give wrong results.

use crate::error::Error;
use crate::options::{self, BufResize, FaultLines, OptionError, Options, When};

/// Rejects option values that are not supported.
pub(crate) fn check_options(options: &Options, cpus: &[u32]) -> Result<(), Error> {
    options.check().map_err(Error::Setting)?;
    if let Some(cpu) = options.cpu.filter(|cpu| !cpus.iter().any(|c| u64::from(*c) == *cpu)) {
        return Err(Error::Setting(format!("failed to set option 'cpu': there is no CPU {cpu} online")));
    }
    let (size, most) = (options.bufsize.0, u64::from(plane::ring::RING_MAX));
    if size > most && options.bufresize == BufResize::Manual {
        return Err(Error::Setting(format!(
            "failed to set option 'bufsize': a buffer has {}m at most (bufresize is manual)",
            most >> 20
        )));
    }
    Ok(())
}

/// As [`check_options`]; also rejects a destructive program without `-w`.
pub(crate) fn check(options: &Options, is_destructive: bool, cpus: &[u32]) -> Result<(), Error> {
    check_options(options, cpus)?;
    if is_destructive && !options.destructive {
        return Err(Error::Setting("could not enable tracing: Destructive actions not allowed".into()));
    }
    Ok(())
}

/// Sets an option that can change while tracing.
pub(super) fn set_dynamic(options: &mut Options, name: &str, value: Option<&str>) -> Result<(), OptionError> {
    let row = options::find(name).ok_or(OptionError::Name)?;
    if row.when != When::Dynamic {
        return Err(OptionError::Active);
    }
    options.set(name, value).map(|_| ())
}

/// What the consumer is told of them.
pub(super) fn consumer_options(options: &Options, target: Option<u32>) -> consumer::Options {
    consumer::Options {
        quiet: options.quiet,
        flowindent: options.flowindent,
        rawbytes: options.rawbytes,
        stackindent: (options.stackindent as usize).min(consumer::Options::STACKINDENT_MAX),
        aggsortkey: options.aggsortkey,
        aggsortrev: options.aggsortrev,
        aggsortkeypos: options.aggsortkeypos as usize,
        aggsortpos: options.aggsortpos as usize,
        aggtop: options.aggtop as usize,
        aggnozero: options.aggnozero,
        aggzoom: options.aggzoom,
        agghist: options.agghist,
        aggpercpu: options.aggpercpu,
        aggpack: options.aggpack,
        encoding: options.encoding,
        droptags: options.droptags,
        all_faults: options.faultlines == FaultLines::All,
        discarded: false,
        target,
    }
}

/// The most bytes of the addresses of servers: a reader is told them with each request.
const MAX_SERVERS: usize = 4096;

/// The servers of debug files that the user has named.
pub(crate) fn debug_servers(options: &Options) -> Result<String, String> {
    let mut all: Vec<String> = Vec::new();
    for text in &options.debuginfod {
        let urls = match text.as_str() {
            "env" => std::env::var("DEBUGINFOD_URLS").unwrap_or_default(),
            url => url.to_owned(),
        };
        all.extend(urls.split_ascii_whitespace().map(String::from));
    }
    match all.iter().find(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
        Some(url) => Err(format!("\"{url}\": a server has an address with https:// or http://")),
        None if all.iter().map(|url| url.len() + 1).sum::<usize>() > MAX_SERVERS => {
            Err(format!("the addresses of all servers are longer than {MAX_SERVERS} bytes"))
        }
        None if !cfg!(feature = "debuginfod") && !all.is_empty() => {
            Err("not available: it was built without the feature debuginfod".into())
        }
        None => Ok(all.join(" ")),
    }
}
