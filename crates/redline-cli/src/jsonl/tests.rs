//! Lines, their answers, and what ends the work.

use std::io::BufReader;

use redline_api::jsonl::generate::GenerateLine;
use redline_engine::EngineError;

use super::lines::Input;
use super::*;

/// Doubles numbers.
struct Doubles;

impl Answers for Doubles {
    type Request = i64;
    type Context = ();
    type Outcome = i64;
    fn begin(&mut self, n: i64, done: Done<i64>) -> Result<(), Failure> {
        if n == 13 {
            return Err(Failure::failed("13 is unlucky", None));
        }
        done.with(n * 2);
        Ok(())
    }
    fn answer(&mut self, (): (), n: i64) -> Result<Answer, Failure> {
        match n {
            28 => Err(Failure::failed("14 comes to nothing", None)),
            32 => Err(EngineError::Stopped.into()),
            n => Ok(Answer { json: n.to_string(), stop: n == 198 }),
        }
    }
}

/// Lines from memory.
fn given(input: Input) -> Lines {
    Lines::new("test".into(), input)
}

fn run(input: &'static [u8]) -> (Vec<String>, Tally) {
    let mut lines = Vec::new();
    let mut write = |answer: Written| {
        lines.push(answer.json);
        Ok(())
    };
    let tally = answer_to(given(Box::new(input)), &mut Doubles, None, &mut write).unwrap();
    (lines, tally)
}

#[test]
fn answers_come_in_order_and_a_bad_line_loses_nothing_else() {
    let (lines, tally) = run(b"1\n13\n\nx\n\xff\n4");
    assert_eq!(lines.len(), 5);
    assert_eq!((&*lines[0], &*lines[4]), ("2", "8"));
    assert_eq!(lines[1], r#"{"object":"error","line":2,"message":"13 is unlucky","hint":null}"#);
    assert!(lines[2].contains(r#""line":4,"#) && lines[2].contains("at column 1"), "{}", lines[2]);
    assert!(lines[2].contains(r#""hint":"each line is one JSON object"#), "{}", lines[2]);
    assert!(lines[3].contains(r#""line":5,"#), "{}", lines[3]);
    assert_eq!(tally, Tally { faults: 3, stopped: false });
    let (lines, tally) = run(b"14\n1");
    assert!(lines[0].contains("comes to nothing") && lines[1] == "2", "{lines:?}");
    assert_eq!(tally.faults, 1);
}

#[test]
fn without_an_engine_no_line_gets_an_error_in_place_of_an_answer() {
    let mut lines = Vec::new();
    let mut write = |answer: Written| {
        lines.push(answer.json);
        Ok(())
    };
    let ended = answer_to(given(Box::new(&b"1\n14\n16\n16\n3\n"[..])), &mut Doubles, None, &mut write);
    assert!(matches!(ended, Err(Failure::Stopped(message)) if message.fact == "the engine has stopped"));
    assert_eq!((lines.len(), &*lines[0]), (2, "2"), "{lines:?}");
}

#[test]
fn a_line_that_is_not_an_object_is_named_by_its_beginning() {
    for (line, expect) in [
        (&b"  nul"[..], "it begins with `n` at column 3"),
        (b"[1]", "it begins with `[` at column 1"),
        (b"\xff", "it begins with `\u{fffd}` at column 1"),
        (br#"{"prompt" 1}"#, "not valid JSON: expected `:` at column 11"),
        (br#"{"prompt":1}"#, "found integer `1`, expected a string or a list of token ids at column 11"),
    ] {
        let Err(Failure::Failed(message)) = parse::<GenerateLine>(line) else { panic!("accepted") };
        assert!(message.fact.ends_with(expect), "{}", message.fact);
    }
}

#[test]
fn more_lines_than_are_under_way_at_a_time() {
    let input = (100..1100).map(|n: i64| n.to_string()).collect::<Vec<_>>().join("\n");
    let (lines, tally) = run(Box::leak(input.into_boxed_str()).as_bytes());
    assert!(lines.iter().enumerate().all(|(n, line)| *line == (2 * (n + 100)).to_string()));
    assert_eq!((lines.len(), tally), (1000, Tally::default()));
}

#[test]
fn an_answer_does_not_wait_for_the_next_line() {
    // A client that sends each line only after it has received the answer to the previous one.
    struct Client(std::sync::mpsc::Receiver<&'static [u8]>, &'static [u8]);
    impl io::Read for Client {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            if self.1.is_empty() {
                self.1 = self.0.recv().unwrap_or(b"");
            }
            self.1.read(to)
        }
    }
    let (send, receive) = std::sync::mpsc::channel();
    send.send(&b"1\n"[..]).unwrap();
    let mut next = vec![&b"2\n"[..], b"3\n"].into_iter();
    let mut send = Some(send);
    let mut seen = Vec::new();
    let mut write = |answer: Written| {
        seen.push(answer.json);
        match next.next() {
            Some(line) => send.as_ref().unwrap().send(line).unwrap(),
            None => send = None,
        }
        Ok(())
    };
    let input: Input = Box::new(BufReader::new(Client(receive, b"")));
    answer_to(given(input), &mut Doubles, None, &mut write).unwrap();
    assert_eq!(seen, ["2", "4", "6"]);
}

#[test]
fn no_more_than_a_window_is_under_way() {
    /// Counts the pending requests, and their maximum number. Outcomes arrive in pairs, that of the later request first.
    #[derive(Default)]
    struct Counted {
        now: usize,
        most: usize,
        waiting: Option<Done<()>>,
    }
    impl Answers for Counted {
        type Request = i64;
        type Context = ();
        type Outcome = ();
        fn begin(&mut self, _: i64, done: Done<()>) -> Result<(), Failure> {
            self.now += 1;
            self.most = self.most.max(self.now);
            match self.waiting.take() {
                Some(earlier) => {
                    done.with(());
                    earlier.with(());
                }
                None => self.waiting = Some(done),
            }
            Ok(())
        }
        fn answer(&mut self, (): (), (): ()) -> Result<Answer, Failure> {
            self.now -= 1;
            Ok(Answer { json: String::new(), stop: false })
        }
    }
    let mut counted = Counted::default();
    let input: Input = Box::new(&b"1\n".repeat(300).leak()[..]);
    let mut written = 0;
    let mut write = |_: Written| {
        written += 1;
        Ok(())
    };
    answer_to(given(input), &mut counted, None, &mut write).unwrap();
    assert_eq!((counted.now, written), (0, 300));
    assert!((2..=WINDOW).contains(&counted.most), "{} at a time", counted.most);
}

#[test]
fn an_interrupt_ends_the_wait_for_lines() {
    struct Blocked(std::sync::mpsc::Receiver<()>);
    impl io::Read for Blocked {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(0)
        }
    }
    let (hold, blocked) = std::sync::mpsc::channel();
    let input: Input = Box::new(BufReader::new(Blocked(blocked)));
    let interrupt = Interrupt::default();
    let tally = std::thread::scope(|threads| {
        let run = || answer_to(given(input), &mut Doubles, Some(&interrupt), &mut |_| Ok(()));
        let work = threads.spawn(run);
        interrupt.cancel();
        work.join().unwrap().unwrap()
    });
    drop(hold);
    assert_eq!(tally, Tally { faults: 0, stopped: true });
}

#[test]
fn input_that_breaks_off_is_an_error_after_the_answers_before_it() {
    struct Breaks(&'static [u8]);
    impl io::Read for Breaks {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            match self.0.read(to) {
                Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
                read => read,
            }
        }
    }
    let mut lines = Vec::new();
    let mut write = |answer: Written| {
        lines.push(answer.json);
        Ok(())
    };
    let input: Input = Box::new(BufReader::new(Breaks(b"1\n2\n")));
    let answered = answer_to(given(input), &mut Doubles, None, &mut write);
    assert!(matches!(answered, Err(Failure::Failed(message)) if message.fact.contains("in `test`")));
    assert_eq!(lines, ["2", "4"]);
}

#[test]
fn the_code_says_the_worst_that_happened() {
    let code = |faults, stopped| format!("{:?}", Tally { faults, stopped }.code());
    let of = |code: u8| format!("{:?}", ExitCode::from(code));
    assert_eq!([code(0, false), code(1, false)], [of(0), of(FAILED)]);
    assert_eq!([code(0, true), code(1, true)], [of(INTERRUPTED), of(INTERRUPTED)]);
}

#[test]
fn a_byte_order_mark_is_accepted_at_the_start_only() {
    let (lines, tally) = run(b"\xef\xbb\xbf7\n\xef\xbb\xbf7\n");
    assert_eq!((&*lines[0], tally.faults), ("14", 1));
    assert_eq!(run(b"\xef\xbb\xbf").0, [""; 0]);
}

/// Lengths of the lines that are read ahead of any answer, at most eight bytes and one line more, and then after one answer.
#[test]
fn the_length_of_pending_lines_is_limited() {
    let read = |answered: Option<usize>| {
        let mut pump = Pump::<(), (), WorkEvent>::default();
        let mut lines = given(Box::new(&b"123\n12345\n1\n"[..]));
        lines.longest = 8;
        let (permits, reader) = spawn_reader(lines, pump.events()).unwrap();
        let mut line = |longest| match pump.receive(longest)? {
            Received::Event(WorkEvent::Line(line)) => line.bytes.ok().map(|bytes| bytes.len()),
            _ => None,
        };
        let mut lengths = vec![line(Duration::MAX).unwrap(), line(Duration::MAX).unwrap()];
        if let Some(bytes) = answered {
            permits.send(bytes).unwrap();
        }
        // Without permits the reader ends.
        drop(permits);
        reader.join().unwrap();
        lengths.extend(std::iter::from_fn(|| line(Duration::ZERO)));
        lengths
    };
    assert_eq!(read(None), [4, 6], "ten bytes are pending");
    assert_eq!(read(Some(4)), [4, 6, 2], "six bytes are pending");
}

#[test]
fn an_empty_input_has_no_answers() {
    assert_eq!(run(b""), (vec![], Tally::default()));
    assert_eq!(run(b"\n  \n"), (vec![], Tally::default()));
}

#[test]
fn an_answer_may_end_the_work() {
    let mut many = b"1\r\n99\r\n".to_vec();
    many.extend(b"3\r\n".repeat(500));
    let (lines, tally) = run(many.leak());
    assert_eq!(lines[..2], ["2", "198"]);
    // Pending requests are answered, and no further ones are begun.
    assert!(tally.stopped && lines.len() < 2 + WINDOW, "{} lines", lines.len());
}

#[test]
fn an_answer_repeats_the_id_of_its_line() {
    assert_eq!(with_id(r#"{"object":"x"}"#.to_owned(), Some("[1]")), r#"{"id":[1],"object":"x"}"#);
    assert_eq!(with_id(r#"{"object":"x"}"#.to_owned(), None), r#"{"object":"x"}"#);
    let (lines, _) = run(br#"{"id":"a","n":1}"#);
    assert!(lines[0].starts_with(r#"{"id":"a","object":"error","line":1,"#), "{}", lines[0]);
}
