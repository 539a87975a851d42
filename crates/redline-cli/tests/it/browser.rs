//! The report in a browser: it renders wide and narrow, light and dark, logs nothing to the console, and makes no network
//! request.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::report::{document, real_runs, report};

/// Names of the browser executable.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Flags that keep the browser from loading anything but the page: no updates, accounts or hints.
const ALONE: &[&str] = &[
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--no-first-run",
    "--no-default-browser-check",
];
/// Timeout for showing a page, after which the browser is killed.
const SECONDS: &str = "120";
/// The widths of a phone and of a screen.
const WIDTHS: [u32; 2] = [390, 1200];
const SCHEMES: [&str; 2] = ["dark", "light"];

/// A browser, with a folder for its pages.
struct Browser {
    name: &'static str,
    folder: TempDir,
}

/// The observations of a rendered page.
struct Seen {
    /// The document after rendering.
    dom: String,
    /// Lines on the console.
    console: Vec<String>,
    /// Network requests of the page.
    requests: Vec<String>,
}

impl Browser {
    /// The first installed browser, if there is one.
    fn find() -> Option<Self> {
        let starts = |program: &str, argument: &str| {
            let quiet =
                Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
            quiet.is_ok_and(|status| status.success())
        };
        let found = BROWSERS.into_iter().find(|name| starts(name, "--version"));
        if let Some(name) = found.filter(|_| starts("timeout", "--version")) {
            return Some(Self { name, folder: tempfile::tempdir().unwrap() });
        }
        redline_testing::skip(&format!(
            "the report is not looked at in a browser (with `timeout`): none of {} starts; on Debian `apt-get install chromium` brings \
             one",
            BROWSERS.join(", ")
        ));
        None
    }

    /// Shows a page in a window of this width.
    fn show(&self, page: &Path, width: u32, scheme: &str) -> Seen {
        let net = self.folder.path().join("net.json");
        let profile = self.folder.path().join("profile");
        let scheme = SCHEMES.iter().position(|known| *known == scheme).unwrap();
        let output = Command::new("timeout")
            .args(["--kill-after=5", SECONDS, self.name])
            .args(ALONE)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--log-net-log={}", net.display()))
            .arg(format!("--window-size={width},900"))
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .args(["--enable-logging=stderr", "--v=0", "--dump-dom"])
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{:?}: {err}", output.status);
        Seen {
            dom: String::from_utf8(output.stdout).unwrap(),
            console: err.lines().filter(|line| line.contains("CONSOLE")).map(ToOwned::to_owned).collect(),
            requests: requests(&fs::read(&net).unwrap()),
        }
    }

    fn write(&self, name: &str, page: &str) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, page).unwrap();
        path
    }

    /// Measures the page in a frame of this width, because a window cannot be as narrow as a phone.
    fn measured(&self, page: &str, width: u32, scheme: &str) -> Value {
        let policy = page.find("<meta http-equiv=").unwrap();
        let end = policy + page[policy..].find("/>").unwrap() + 2;
        let probe = format!("<script>{PROBE}</script></body>");
        let free = format!("{}{}", &page[..policy], &page[end..]).replace("</body>", &probe);
        self.write("free.html", &free);
        let frame =
            format!("<iframe style=\"border:0;width:{width}px;height:900px\" src=\"free.html\"></iframe>");
        let listen = "onmessage=e=>document.documentElement.setAttribute('data-told',e.data)";
        let dark = "<meta name=\"color-scheme\" content=\"light dark\">";
        let outer = self.write(
            "outer.html",
            &format!("<!doctype html>{dark}<script>{listen}</script><body>{frame}</body>"),
        );
        let seen = self.show(&outer, 1400, scheme);
        let told = seen.dom.split("data-told=\"").nth(1).and_then(|rest| rest.split('"').next());
        let told = told
            .unwrap_or_else(|| panic!("nothing measured: {:?} {}", seen.console, seen.dom))
            .replace("&quot;", "\"");
        serde_json::from_str(&told).unwrap()
    }
}

/// Reports widths, colours and the smallest text, after opening everything that can be opened.
const PROBE: &str = r"
onload = () => {
  document.querySelectorAll('details').forEach(d => d.open = true);
  const root = document.documentElement;
  const seen = [...document.querySelectorAll('main svg[role=img]')].map(s => s.getBoundingClientRect());
  const texts = [...document.querySelectorAll('main svg text')].map(t => t.getBoundingClientRect().height);
  parent.postMessage(JSON.stringify({
    inner: innerWidth, scroll: root.scrollWidth, pictures: seen.length,
    blank: seen.filter(r => r.width < 40 || r.height < 8).length,
    smallest: Math.min(...texts), paper: getComputedStyle(document.body).backgroundColor,
  }), '*');
};";

/// The network requests of pages in the browser's network log. The browser's own requests have no origin.
fn requests(log: &[u8]) -> Vec<String> {
    let log: Value = serde_json::from_slice(log).unwrap();
    let start = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(start.is_number(), "the log knows no requests");
    let events = log["events"].as_array().unwrap().iter().filter(|event| &event["type"] == start);
    let asked = events.map(|event| &event["params"]).filter(|params| params["initiator"] != "not an origin");
    let urls = asked.filter_map(|params| params["url"].as_str());
    urls.filter(|url| !url.starts_with("file:") && !url.starts_with("data:")).map(ToOwned::to_owned).collect()
}

/// A report of runs of two commits and two engines, with imported results.
fn page(all: &Path) -> String {
    for (name, engine, day, samples) in [
        ("first", "one", 20, [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0]),
        ("second", "one", 21, [8.0, 8.1, 7.9, 8.0, 8.2, 7.8, 8.0]),
        ("third", "two", 21, [12.0, 12.1, 11.9, 12.0, 12.2, 11.8, 13.0]),
    ] {
        let mut run = document(engine, &samples);
        run["started_at"] = format!("2026-11-{day}T00:00:00Z").into();
        run["engine"]["git"] = name.into();
        // A long name without a break opportunity.
        run["rows"][0]["kernel_path"] = "x".repeat(400).into();
        fs::create_dir_all(all.join(name)).unwrap();
        fs::write(all.join(name).join("run.json"), run.to_string()).unwrap();
    }
    let base = all.join("first");
    report(&[all.to_str().unwrap()], &all.join("report.html"), &["--base", base.to_str().unwrap()])
}

#[test]
fn the_report_renders_and_keeps_to_itself() {
    let Some(browser) = Browser::find() else { return };
    let all = browser.folder.path().join("all");
    real_runs(&all);
    let page = page(&all);
    let file = browser.write("page.html", &page);
    for scheme in SCHEMES {
        let seen = browser.show(&file, WIDTHS[1], scheme);
        assert_eq!((seen.console, seen.requests), (Vec::<String>::new(), Vec::<String>::new()), "{scheme}");
        for text in ["Roofline", "Latency distributions", "gemm/w8g0/m3/n40/k96/t1", "✓", "faster"] {
            assert!(seen.dom.contains(text), "{text}");
        }
        assert_eq!(seen.dom.matches("<svg").count(), page.matches("<svg").count());
    }
    for width in WIDTHS {
        let told = SCHEMES.map(|scheme| browser.measured(&page, width, scheme));
        for told in &told {
            assert_eq!(told["inner"], width);
            assert!(told["scroll"].as_u64().unwrap() <= u64::from(width), "wider than the window: {told}");
            assert!(told["pictures"].as_u64().unwrap() > 10 && told["blank"] == 0, "{told}");
            assert!(told["smallest"].as_f64().unwrap() >= 8.0, "text too small to read: {told}");
        }
        assert_ne!(told[0]["paper"], told[1]["paper"], "dark is light");
    }
}

/// The checks of the test above fail on a page that violates them.
#[test]
fn a_page_that_does_not_keep_to_itself_is_found() {
    let Some(browser) = Browser::find() else { return };
    let page = page(&browser.folder.path().join("all"));
    let image = "<img src=\"http://127.0.0.1:9/x.png\"/></body>";
    let asking = browser.write("asking.html", &page.replace("</body>", image));
    let seen = browser.show(&asking, WIDTHS[1], "light");
    assert!(
        seen.requests.is_empty() && seen.console.iter().any(|line| line.contains("Content Security Policy")),
        "{:?}",
        seen.console
    );
    let free = browser.write("asking.html", &format!("<!doctype html><body>{image}"));
    assert_eq!(browser.show(&free, WIDTHS[1], "light").requests, ["http://127.0.0.1:9/x.png"]);
    let wide = page.replace("<main>", "<main><div style=\"width:3000px\">wide</div>");
    assert!(browser.measured(&wide, WIDTHS[0], "light")["scroll"].as_u64().unwrap() >= 3000);
}
