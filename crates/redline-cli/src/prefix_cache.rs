//! Flags for what is kept of finished requests, in memory and on disk, and the messages about the latter.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use redline_engine::{PrefixCacheSize, PrefixDir, PrefixDirEvent};

use crate::env::{self, Environment, or_else};
use crate::message::{self, Failure};
use crate::model::Settings;
use crate::value::{self, PrefixCache};

/// Maximum bytes on disk, unless a flag says otherwise.
const DISK_BYTES: u64 = 8 << 30;

/// What is kept for later requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(crate) struct PrefixCacheFlags {
    /// Keep the keys and values of finished requests, for requests that begin with the same tokens: on (up to 65536
    /// tokens and 2GiB), off, or up to a size such as 8GiB; default on [env: REDLINE_PREFIX_CACHE]
    #[arg(long, value_name = "SIZE", value_parser = value::prefix_cache)]
    prefix_cache: Option<PrefixCache>,
    /// Keep them in this directory, too, so that they outlive the process; processes and machines may share it [env:
    /// REDLINE_PREFIX_CACHE_DIR]
    #[arg(long, value_name = "DIR")]
    prefix_cache_dir: Option<PathBuf>,
    /// Maximum size of its files; default 8GiB [env: REDLINE_PREFIX_CACHE_DISK]
    #[arg(long, value_name = "SIZE", value_parser = value::bytes)]
    prefix_cache_disk: Option<u64>,
}

impl PrefixCacheFlags {
    /// Adds the settings from the flags or the environment.
    pub(crate) fn resolve(&self, settings: Settings, environment: Environment) -> Result<Settings, Failure> {
        let PrefixCache(size) =
            or_else(self.prefix_cache, || environment.value(env::PREFIX_CACHE, value::prefix_cache))?
                .unwrap_or(PrefixCache(Some(PrefixCacheSize::Automatic)));
        let bytes =
            or_else(self.prefix_cache_disk, || environment.value(env::PREFIX_CACHE_DISK, value::bytes))?;
        let dir = self.prefix_cache_dir.clone().or_else(|| environment.path(env::PREFIX_CACHE_DIR));
        if size.is_none() && self.prefix_cache_dir.is_some() {
            let hint = "leave out `--prefix-cache off`, or `--prefix-cache-dir`";
            return Err(Failure::usage("`--prefix-cache-dir` needs the prefix cache, which is off", hint));
        }
        let bytes = bytes.unwrap_or(DISK_BYTES);
        let dir = dir.map(|dir| PrefixDir { dir, bytes, log: Arc::new(say) });
        Ok(settings.with_prefix_cache(size, dir))
    }
}

fn say(event: &PrefixDirEvent) {
    match event {
        PrefixDirEvent::Unusable { dir, reason } => message::say(format_args!(
            "warning: the prefix cache is kept in memory only: {reason}\n  in `{}`\n",
            dir.display()
        )),
        PrefixDirEvent::Damaged { path, reason } => message::say(format_args!(
            "warning: a stored page is damaged and is computed again: {reason}\n  in `{}`\n",
            path.display()
        )),
        PrefixDirEvent::NotRead { dir, reason } => {
            message::say(format_args!(
                "warning: a stored page is not read: {reason}\n  in `{}`\n",
                dir.display()
            ));
        }
        PrefixDirEvent::NotWritten { dir, reason } => {
            message::say(format_args!("warning: a page is not stored: {reason}\n  in `{}`\n", dir.display()));
        }
        PrefixDirEvent::Slow { dir } => message::say(format_args!(
            "warning: stored pages are read so slowly that requests do not wait for them\n  in `{}`\n",
            dir.display()
        )),
    }
}
