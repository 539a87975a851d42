//! Writes the file of `--profile-trace`: Chrome-trace JSON, complete after every pass.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use redline_api::documents::profile::{TraceArgs, TraceEvent};
use redline_api::json::finite::Finite;
use redline_engine::{Operation, ProfileEvent as Event, ProfileLog, ProfiledPass, Span};

use crate::message;
use crate::message::Failure;

/// The text before the events.
const HEAD: &[u8] = b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
/// The text after the events.
const TAIL: &[u8] = b"\n]}\n";
/// The track id of passes.
const PASSES: u32 = 1;
/// The track id of the first thread.
const THREADS: u32 = 2;

/// A profile being written. Each engine of a command appears as its own process in it. Clones write to the same file.
#[derive(Clone)]
pub(crate) struct ProfileFile(Arc<Shared>);

struct Shared {
    path: PathBuf,
    engines: AtomicU32,
    /// `None` after a write failed.
    writing: Mutex<Option<Writing>>,
}

struct Writing {
    file: File,
    /// Whether the file supports seeking, so that it can be complete after every pass. Otherwise it is completed at
    /// the end.
    seeks: bool,
    /// The offset of the next event.
    end: u64,
    events: u64,
    dropped: u64,
}

/// Opens the file. Its previous content stays until the first event is written.
pub(crate) fn open(path: &Path) -> Result<ProfileFile, Failure> {
    let unusable = |error: io::Error| {
        let fact = format!("{error}\n  in `{}`", path.display());
        Failure::usage(fact, "`--profile-trace FILE` names a file that can be written")
    };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(unusable)?;
    let seeks = file.metadata().map_err(unusable)?.is_file();
    let writing = Writing { file, seeks, end: 0, events: 0, dropped: 0 };
    Ok(ProfileFile(Arc::new(Shared {
        path: path.to_owned(),
        engines: AtomicU32::new(0),
        writing: Mutex::new(Some(writing)),
    })))
}

impl ProfileFile {
    /// The log of a further engine.
    pub(crate) fn log(&self) -> ProfileLog {
        let shared = Arc::clone(&self.0);
        let pid = 1 + shared.engines.fetch_add(1, Ordering::Relaxed);
        let passes = AtomicU64::new(0);
        Arc::new(move |event| {
            let (mut events, mut dropped) = (Events { pid, all: Vec::new() }, 0);
            match event {
                Event::Started { kernel_path, threads } => events.names(kernel_path, *threads),
                Event::Arrived { request, at } => events.request("b", *request, *at, TraceArgs::default()),
                Event::Ended { request, at, computed_tokens, fault } => {
                    let (tokens, fault) = (Some(*computed_tokens), fault.map(Cow::Borrowed));
                    events.request("e", *request, *at, TraceArgs { tokens, fault, ..TraceArgs::default() });
                }
                Event::Pass(pass) => {
                    dropped = pass.profile.dropped();
                    events.pass(passes.fetch_add(1, Ordering::Relaxed), pass);
                }
            }
            shared.write(&events.all, dropped);
        })
    }
}

impl Shared {
    fn write(&self, events: &[TraceEvent], dropped: u64) {
        let Ok(mut writing) = self.writing.lock() else { return };
        if let Some(Err(error)) = writing.as_mut().map(|file| file.write(events, dropped)) {
            *writing = None;
            let path = self.path.display();
            message::say(format_args!("warning: the profile ends here: {error}\n  in `{path}`\n"));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Ok(Some(writing)) = self.writing.get_mut() else { return };
        if !writing.seeks && writing.events > 0 {
            // There is no way left to report an error.
            let _ = writing.file.write_all(TAIL);
        }
        if writing.dropped > 0 {
            let (dropped, path) = (writing.dropped, self.path.display());
            let fact = "spans of the profile found no room and are left out";
            message::say(format_args!("warning: {dropped} {fact}\n  in `{path}`\n"));
        }
    }
}

impl Writing {
    /// Appends events in a single write.
    fn write(&mut self, events: &[TraceEvent], dropped: u64) -> io::Result<()> {
        self.dropped += dropped;
        let mut piece = Vec::new();
        if self.events == 0 {
            if self.seeks {
                self.file.set_len(0)?;
            }
            piece.extend_from_slice(HEAD);
        }
        for event in events {
            piece.extend_from_slice(if self.events == 0 { b"\n" } else { b",\n" });
            serde_json::to_writer(&mut piece, event)?;
            self.events += 1;
        }
        let length = piece.len() as u64;
        if self.seeks {
            self.file.seek(SeekFrom::Start(self.end))?;
            piece.extend_from_slice(TAIL);
        }
        self.end += length;
        self.file.write_all(&piece)
    }
}

/// The events of one engine.
struct Events {
    pid: u32,
    all: Vec<TraceEvent>,
}

impl Events {
    fn push(
        &mut self,
        name: Cow<'static, str>,
        cat: &'static str,
        ph: &'static str,
        tid: u32,
        at: u64,
    ) -> &mut TraceEvent {
        let args = TraceArgs::default();
        let event = TraceEvent {
            name,
            cat: cat.into(),
            ph: ph.into(),
            ts: microseconds(at),
            dur: None,
            pid: self.pid,
            tid,
            id: None,
            args,
        };
        self.all.push(event);
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    /// Adds the names of the engine and its tracks.
    fn names(&mut self, kernel_path: &str, threads: usize) {
        let mut name = |what: &'static str, tid: u32, name: String| {
            let event = self.push(what.into(), "__metadata", "M", tid, 0);
            event.args.name = Some(name.into());
        };
        name("process_name", 0, format!("redline {kernel_path}"));
        name("thread_name", PASSES, "passes".to_owned());
        for thread in 0..threads {
            name("thread_name", THREADS + thread as u32, format!("thread {thread}"));
        }
        for tid in PASSES..THREADS + threads as u32 {
            self.push("thread_sort_index".into(), "__metadata", "M", tid, 0).args.sort_index = Some(tid);
        }
    }

    /// The begin or end event of a request. Requests overlap, so they cannot be spans of a track.
    fn request(&mut self, ph: &'static str, request: u64, at: u64, args: TraceArgs) {
        let id = (u64::from(self.pid) << 32) | request;
        let event = self.push(format!("request {request}").into(), "request", ph, 0, at);
        event.id = Some(format!("{id:#x}"));
        event.args = args;
    }

    /// Adds a pass, then its layers and operations in the order of their start, then the work of each thread.
    fn pass(&mut self, number: u64, pass: &ProfiledPass<'_>) {
        let profile = pass.profile;
        let (start, end) = profile.pass();
        let args = TraceArgs {
            pass: Some(number),
            requests: Some(pass.requests.to_vec()),
            tokens: Some(pass.tokens),
            sequences: Some(pass.sequences),
            outputs: Some(pass.outputs),
            plan: Some(pass.bucket.to_string()),
            ..TraceArgs::default()
        };
        self.span(format!("pass {number}").into(), "pass", PASSES, (start, end)).args = args;
        for span in profile.spans() {
            let cat = if span.operation.is_some() { "operation" } else { "layer" };
            self.span(name(span), cat, PASSES, (span.start, span.end)).args = args_of(number, span);
        }
        for member in 0..profile.members() {
            for work in profile.works(member) {
                let Some(span) = profile.spans().get(work.label as usize) else { continue };
                let tid = THREADS + member as u32;
                let event = self.span(name(span), "thread", tid, (work.start, work.end));
                event.args = TraceArgs { pass: Some(number), layer: span.layer, ..TraceArgs::default() };
            }
        }
    }

    fn span(
        &mut self,
        name: Cow<'static, str>,
        cat: &'static str,
        tid: u32,
        (start, end): (u64, u64),
    ) -> &mut TraceEvent {
        let event = self.push(name, cat, "X", tid, start);
        event.dur = Some(microseconds(end.saturating_sub(start)));
        event
    }
}

/// Converts nanoseconds to microseconds.
fn microseconds(nanoseconds: u64) -> Finite<f64> {
    Finite(nanoseconds as f64 / 1e3)
}

/// The display name of a span.
fn name(span: &Span) -> Cow<'static, str> {
    match (span.operation, span.layer) {
        (Some(Operation { name, site: Some(site), .. }), _) => format!("{name} {}", site.name()).into(),
        (Some(Operation { name, .. }), _) => name.into(),
        (None, Some(layer)) => format!("layer {layer}").into(),
        (None, None) => "layer".into(),
    }
}

fn args_of(pass: u64, span: &Span) -> TraceArgs {
    let args = TraceArgs { pass: Some(pass), layer: span.layer, ..TraceArgs::default() };
    let Some(operation) = span.operation else { return args };
    TraceArgs {
        m: Some(operation.m),
        n: Some(operation.n),
        k: operation.k,
        format: operation.format.map(|format| format.to_string()),
        variant: operation.variant.map(|variant| variant.name().into()),
        ..args
    }
}

#[cfg(test)]
mod tests {
    use redline_api::documents::profile::TraceDocument;
    use redline_kernels::Format;
    use redline_kernels::op::linear::Variant;
    use redline_models::plan::Site;

    use super::*;

    #[test]
    fn every_engine_is_a_process_with_tracks_and_requests_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let file = open(&path).unwrap();
        for log in [file.log(), file.log()] {
            log(&Event::Started { kernel_path: "scalar/f32", threads: 2 });
            log(&Event::Arrived { request: 7, at: 1_500 });
            log(&Event::Ended { request: 7, at: 2_250, computed_tokens: 3, fault: None });
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let events = serde_json::from_str::<TraceDocument>(&text).unwrap().trace_events;
        let requests: Vec<_> = events
            .iter()
            .filter(|event| event.cat == "request")
            .map(|event| (event.pid, &*event.ph, event.ts.0, event.id.as_deref().unwrap(), event.args.tokens))
            .collect();
        let expected = [
            (1, "b", 1.5, "0x100000007", None),
            (1, "e", 2.25, "0x100000007", Some(3)),
            (2, "b", 1.5, "0x200000007", None),
            (2, "e", 2.25, "0x200000007", Some(3)),
        ];
        assert_eq!(requests, expected, "in microseconds");
        let names: Vec<_> = events
            .iter()
            .filter_map(|event| Some((event.pid, event.tid, event.args.name.as_deref()?)))
            .collect();
        let of = |pid: u32| {
            [(pid, 0, "redline scalar/f32"), (pid, 1, "passes"), (pid, 2, "thread 0"), (pid, 3, "thread 1")]
        };
        assert_eq!(names, [of(1), of(2)].concat());
        let sorted: Vec<_> =
            events.iter().filter_map(|event| Some((event.tid, event.args.sort_index?))).collect();
        assert_eq!(sorted, [(1, 1), (2, 2), (3, 3), (1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn spans_are_named_after_their_operation_or_their_layer() {
        let (site, format, variant) = (None, None, None);
        let operation = Operation { name: "attention", site, m: 2, n: 8, k: Some(5), format, variant };
        let span = |operation| Span { layer: Some(3), operation, start: 0, end: 1 };
        assert_eq!((&*name(&span(Some(operation))), &*name(&span(None))), ("attention", "layer 3"));
        let args = args_of(9, &span(Some(operation)));
        assert_eq!(
            (args.pass, args.layer, args.m, args.n, args.k),
            (Some(9), Some(3), Some(2), Some(8), Some(5))
        );
        let layer = args_of(9, &span(None));
        assert_eq!((layer.pass, layer.layer, layer.m), (Some(9), Some(3), None));
    }

    #[test]
    fn a_linear_layer_tells_its_site_its_format_and_its_variant() {
        let operation = Operation {
            name: "linear",
            site: Some(Site::Down),
            m: 1,
            n: 2,
            k: Some(3),
            format: Some(Format::W8 { group: 0 }),
            variant: Some(Variant::Tiles),
        };
        let span = Span { layer: Some(0), operation: Some(operation), start: 0, end: 1 };
        assert_eq!(&*name(&span), "linear down");
        let args = args_of(0, &span);
        assert_eq!((args.format.as_deref(), args.variant.as_deref()), (Some("w8g0"), Some("tiles")));
    }

    #[test]
    fn a_file_keeps_its_content_until_the_first_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        std::fs::write(&path, "of an earlier run\n".repeat(99)).unwrap();
        let log = open(&path).unwrap().log();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("of an earlier run"));
        log(&Event::Arrived { request: 0, at: 0 });
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<TraceDocument>(&text).unwrap().trace_events.len(), 1, "{text}");
    }

    #[test]
    fn spans_that_found_no_room_are_counted_over_all_passes() {
        let folder = tempfile::tempdir().unwrap();
        let file = open(&folder.path().join("profile.json")).unwrap();
        for dropped in [2, 0, 3] {
            file.0.write(&[], dropped);
        }
        let mut writing = file.0.writing.lock().unwrap();
        // Taken out, so that the end of the file does not report them.
        assert_eq!(writing.take().map(|writing| writing.dropped), Some(5));
    }
}
