//! Tests of `tarball` and `http`, against directories and a server on the loopback interface.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;
use crate::source::MirrorMap;
use crate::source::testing::net;

const URL: &str = "https://ftp.example.org/pub/tool-1.tar.gz";

fn bytes() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

/// What the server does with one request.
enum Act {
    /// The whole file, announced; the connection is closed after so many bytes of it.
    Cut(usize),
    /// The whole file.
    Whole,
    /// The part that was asked for.
    Rest,
    /// Something else.
    Say(&'static str, &'static str),
}

/// Serves exactly one request per act and gives back the `Range` and `If-Range` it saw.
struct Server {
    url: String,
    thread: JoinHandle<Vec<String>>,
}

fn serve(acts: Vec<Act>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || acts.into_iter().map(|act| answer(&listener, &act)).collect());
    Server { url, thread }
}

fn answer(listener: &TcpListener, act: &Act) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let head: Vec<String> = lines.map(Result::unwrap).take_while(|l| !l.is_empty()).collect();
    let seen = |name: &str| {
        let line = head.iter().find(|l| l.to_ascii_lowercase().starts_with(name));
        line.map_or("", |l| l.split_once(": ").unwrap().1).to_owned()
    };
    let range = seen("range: ");
    let body = bytes();
    let whole = format!(
        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let (head, body) = match act {
        Act::Cut(n) => (whole, body[..*n].to_vec()),
        Act::Whole => (whole, body),
        Act::Rest => {
            let from: usize = range["bytes=".len()..range.len() - 1].parse().unwrap();
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nETag: \"e\"\r\nContent-Range: bytes {from}-{}/{}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len() - 1,
                body.len(),
                body.len() - from
            );
            (head, body[from..].to_vec())
        }
        Act::Say(status, text) => (
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            ),
            text.as_bytes().to_vec(),
        ),
    };
    // The client may have hung up, which is its right.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
    format!("{range} {}", seen("if-range: ")).trim().to_owned()
}

struct Case {
    temp: tempfile::TempDir,
    net: Net,
    pin: String,
}

impl Case {
    /// `URL`'s host is mapped to `place`.
    fn mapped(place: &str) -> Self {
        let map = format!("https://ftp.example.org/pub={place}");
        let net = Net {
            mirrors: MirrorMap::parse(&map).unwrap(),
            ..net()
        };
        Case {
            temp: tempfile::tempdir().unwrap(),
            net,
            pin: sha256(bytes()),
        }
    }

    fn downloads(&self) -> PathBuf {
        self.temp.path().join("downloads")
    }

    fn ensure(&self, pin: Option<&str>) -> Result<Got> {
        ensure(
            &self.downloads(),
            pin,
            &[Place::Url(URL.into())],
            &self.net,
            &Log::none(),
        )
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.downloads())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|n| !n.ends_with(".lock")).collect();
        names.sort();
        names
    }
}

#[test]
fn a_mapped_directory_serves_and_the_cache_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tool-1.tar.gz"), bytes()).unwrap();
    let case = Case::mapped(&dir.path().display().to_string());
    let got = case.ensure(Some(&case.pin)).unwrap();
    assert_eq!(got.obtained_from, "mirror");
    assert_eq!(fs::read(&got.path).unwrap(), bytes());
    drop(dir);
    assert_eq!(
        case.ensure(Some(&case.pin)).unwrap(),
        got,
        "no place is needed any more"
    );
    assert_eq!(case.files(), [case.pin.clone(), format!("{}.from", case.pin)]);
    // A damaged file in the cache is not believed.
    fs::write(&got.path, "damaged").unwrap();
    let error = case.ensure(Some(&case.pin)).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
}

#[test]
fn an_archive_without_a_pin_is_named_by_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tool-1.tar.gz"), bytes()).unwrap();
    let case = Case::mapped(&dir.path().display().to_string());
    for _ in 0..2 {
        let got = case.ensure(None).unwrap();
        assert_eq!(
            (got.sha256.as_str(), got.path),
            (case.pin.as_str(), case.downloads().join(&case.pin))
        );
    }
}

#[test]
fn a_wrong_checksum_shows_both_values_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tool-1.tar.gz"), "other").unwrap();
    let case = Case::mapped(&dir.path().display().to_string());
    let error = case.ensure(Some(&case.pin)).unwrap_err();
    assert_eq!(error.exit(), Exit::Source);
    assert_eq!(error.headline(), "checksum mismatch of `tool-1.tar.gz`");
    assert_eq!(error.details()[0], ("expected".to_owned(), case.pin.clone()));
    assert_eq!(error.details()[1], ("got".to_owned(), sha256("other")));
    assert_eq!(case.files(), [""; 0]);
    assert_eq!(case.ensure(Some("abc")).unwrap_err().exit(), Exit::Usage);
}

#[test]
fn a_broken_transfer_goes_on_where_it_broke() {
    let server = serve(vec![Act::Cut(300_000), Act::Rest]);
    let case = Case::mapped(&server.url);
    let got = case.ensure(Some(&case.pin)).unwrap();
    assert_eq!(fs::read(got.path).unwrap(), bytes());
    let seen = server.thread.join().unwrap();
    assert_eq!(seen[0], "");
    assert!(
        seen[1].starts_with("bytes=") && seen[1].ends_with("- \"e\""),
        "{seen:?}"
    );
}

#[test]
fn a_later_run_goes_on_with_what_an_earlier_one_left() {
    let server = serve(vec![Act::Cut(100_000), Act::Say("404 Not Found", "")]);
    let mut case = Case::mapped(&server.url);
    let error = case.ensure(Some(&case.pin)).unwrap_err();
    assert!(error.to_string().contains("404 Not Found"), "{error}");
    server.thread.join().unwrap();
    let left = fs::metadata(case.downloads().join(format!("{}.partial", case.pin)))
        .unwrap()
        .len();
    assert!(left > 0 && left <= 100_000, "{left}");
    // Another server has the same file but another URL: the parts may not be mixed.
    let server = serve(vec![Act::Whole]);
    case.net = Case::mapped(&server.url).net;
    case.ensure(Some(&case.pin)).unwrap();
    assert_eq!(server.thread.join().unwrap(), [""]);
}

#[test]
fn parts_that_do_not_fit_are_fetched_anew() {
    let server = serve(vec![Act::Rest, Act::Whole]);
    let case = Case::mapped(&server.url);
    fs::create_dir(case.downloads()).unwrap();
    let partial = case.downloads().join(format!("{}.partial", case.pin));
    fs::write(&partial, "spoilt").unwrap();
    fs::write(
        partial.with_extension("resume"),
        format!("{}/tool-1.tar.gz\n\"e\"", server.url),
    )
    .unwrap();
    case.ensure(Some(&case.pin)).unwrap();
    assert_eq!(server.thread.join().unwrap(), ["bytes=6- \"e\"", ""]);
}

#[test]
fn a_server_that_knows_no_such_range_is_asked_for_the_whole() {
    let server = serve(vec![
        Act::Cut(1000),
        Act::Say("416 Range Not Satisfiable", ""),
        Act::Whole,
    ]);
    let case = Case::mapped(&server.url);
    case.ensure(Some(&case.pin)).unwrap();
    assert_eq!(server.thread.join().unwrap().len(), 3);
}

#[test]
fn a_web_page_in_place_of_the_file_is_recognised() {
    for pinned in [true, false] {
        let server = serve(vec![Act::Say(
            "200 OK",
            "\n<!DOCTYPE html><html><title>We moved</title>",
        )]);
        let case = Case::mapped(&server.url);
        let error = case.ensure(pinned.then_some(case.pin.as_str())).unwrap_err();
        assert_eq!(error.exit(), Exit::Source);
        assert!(
            error.to_string().contains("a web page, not an archive: We moved"),
            "{error}"
        );
        assert_eq!(case.files(), [""; 0]);
        server.thread.join().unwrap();
    }
}

#[test]
fn plain_http_needs_a_mapping() {
    let temp = tempfile::tempdir().unwrap();
    let online = Net {
        offline: false,
        ..net()
    };
    let places = [Place::Url("http://user:secret@127.0.0.1:9/a.tar.gz".into())];
    let error = ensure(temp.path(), None, &places, &online, &Log::none()).unwrap_err();
    assert!(error.to_string().contains("not https"), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

struct FakePool<'a> {
    gives: Result<&'a [u8], &'a str>,
    asked: Cell<u32>,
}

impl Pool for FakePool<'_> {
    fn label(&self) -> String {
        "pool".into()
    }

    fn provide(&self, _: Option<&str>, file: &Path) -> Result<std::result::Result<String, String>> {
        self.asked.set(self.asked.get() + 1);
        Ok(match self.gives {
            Ok(bytes) => {
                fs::write(file, bytes).unwrap();
                Ok("distro:tool=1-1".into())
            }
            Err(why) => Err(why.into()),
        })
    }
}

#[test]
fn places_are_tried_in_order_and_all_are_listed() {
    let case = Case::mapped("/no/such/dir");
    let body = bytes();
    let good = FakePool {
        gives: Ok(&body),
        asked: Cell::new(0),
    };
    let bad = FakePool {
        gives: Err("404"),
        asked: Cell::new(0),
    };
    let url = || Place::Url(URL.into());
    let error = ensure(
        &case.downloads(),
        Some(&case.pin),
        &[url(), Place::Pool(&bad)],
        &case.net,
        &Log::none(),
    )
    .unwrap_err();
    let tried: Vec<&str> = error.details().iter().map(|(_, v)| v.as_str()).collect();
    assert_eq!(
        tried,
        ["/no/such/dir/tool-1.tar.gz: no such file", "pool: 404", &case.pin]
    );
    assert!(error.hint_text().unwrap().contains("--offline"));
    let places = [Place::Pool(&bad), Place::Pool(&good), url()];
    let got = ensure(&case.downloads(), Some(&case.pin), &places, &case.net, &Log::none()).unwrap();
    assert_eq!(got.obtained_from, "distro:tool=1-1");
    ensure(&case.downloads(), Some(&case.pin), &places, &case.net, &Log::none()).unwrap();
    assert_eq!(
        (bad.asked.get(), good.asked.get()),
        (2, 1),
        "the cache serves before any place"
    );
}

#[test]
fn an_interrupted_run_asks_nobody_any_more() {
    let case = Case::mapped("http://127.0.0.1:9");
    case.net.cancel.request(crate::process::Urgency::Orderly);
    assert_eq!(case.ensure(Some(&case.pin)).unwrap_err().exit(), Exit::Interrupted);
}
