//! Run this, and in another terminal
//! `dtrace -n 'myapp*:::request-start { printf("%d %s", args[0], copyinstr(arg1)); }'`.

use dtrace_usdt::{Provider, probe};

fn main() -> std::io::Result<()> {
    let mut provider = Provider::new("myapp")?;
    let request = provider.probe("request-start", "int id, char *path")?;
    provider.enable()?;
    for n in 0.. {
        probe!(request, n, "/index.html");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(())
}
