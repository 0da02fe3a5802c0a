//! Downloads over HTTP into a partial file that a later attempt goes on with.
//!
//! Knows URLs, ranges and validators. Knows no checksums: it says what it got, the caller decides.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use sha2::{Digest, Sha256};
use ureq::http::{HeaderMap, Response, header};

use super::{Attempt, Log, Net, check_interrupt};
use crate::digest::hex;
use crate::error::{Error, Exit, IoContext, Result};
use crate::process::Cancel;
use crate::text::public_url;

/// A transfer that breaks off is taken up again as long as each attempt brings something.
const ATTEMPTS: usize = 5;

/// No release archive is larger; a server that never stops must not fill the disk.
const LARGEST: u64 = 8 << 30;

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Of the whole file.
    pub sha256: String,
    /// Whether a part of it is from an earlier run, which a changed file could spoil.
    pub resumed: bool,
}

/// Downloads `url` into `partial`, going on with what is there if the server says it is the same file.
/// `mapped` URLs may be plain HTTP: the user chose them.
pub(super) fn download(url: &str, mapped: bool, partial: &Path, net: &Net, log: &Log) -> Attempt<Arrived> {
    let agent = match agent(url, mapped, net)? {
        Ok(agent) => agent,
        Err(why) => return Ok(Err(why)),
    };
    let transfer = Transfer {
        url,
        partial,
        agent,
        cancel: &net.cancel,
    };
    let mut resumed = false;
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        check_interrupt(&net.cancel)?;
        let had = transfer.resumable();
        log.line(format!("+ GET {} from byte {had}", public_url(url)));
        let end = transfer.once(had)?;
        match end {
            End::Whole { sha256, appended } => {
                resumed |= appended;
                return Ok(Ok(Arrived { sha256, resumed }));
            }
            End::Refused(reason) => return Ok(Err(logged(log, reason))),
            End::Broken { reason, appended } => {
                why = logged(log, reason);
                resumed |= appended;
                if transfer.resumable() <= had {
                    break;
                }
            }
        }
    }
    Ok(Err(why))
}

fn logged(log: &Log, reason: String) -> String {
    log.line(format!("= {reason}"));
    reason
}

/// Forgets a partial file.
pub(super) fn discard(partial: &Path) {
    let _ = fs::remove_file(partial);
    let _ = fs::remove_file(note(partial));
}

/// Beside the partial file: the URL and the validator of what it is a part of.
fn note(partial: &Path) -> PathBuf {
    partial.with_extension("resume")
}

enum End {
    Whole {
        sha256: String,
        appended: bool,
    },
    /// The server will not give the file.
    Refused(String),
    /// The transfer ended early.
    Broken {
        reason: String,
        appended: bool,
    },
}

struct Transfer<'a> {
    url: &'a str,
    partial: &'a Path,
    agent: ureq::Agent,
    cancel: &'a Cancel,
}

impl Transfer<'_> {
    fn validator(&self) -> Option<String> {
        let text = fs::read_to_string(note(self.partial)).ok()?;
        let (url, validator) = text.split_once('\n')?;
        (url == self.url && !validator.is_empty()).then(|| validator.to_owned())
    }

    /// Bytes that a range request can go on from.
    fn resumable(&self) -> u64 {
        let bytes = fs::metadata(self.partial).map_or(0, |m| m.len());
        if self.validator().is_some() { bytes } else { 0 }
    }

    fn once(&self, had: u64) -> Result<End> {
        let mut request = self.agent.get(self.url);
        if let (true, Some(validator)) = (had > 0, self.validator()) {
            request = request
                .header(header::RANGE, format!("bytes={had}-"))
                .header(header::IF_RANGE, validator);
        }
        let response = match request.call() {
            Ok(response) => response,
            Err(e) => {
                return Ok(End::Broken {
                    reason: said(&e),
                    appended: false,
                });
            }
        };
        match response.status().as_u16() {
            200 => self.store(response, 0),
            206 if range_start(response.headers()) == Some(had) => self.store(response, had),
            206 | 416 if had > 0 => {
                // The server cannot go on from here; from the start it may.
                discard(self.partial);
                self.once(0)
            }
            500..=599 => Ok(End::Broken {
                reason: format!("the server answered {}", response.status()),
                appended: false,
            }),
            _ => Ok(End::Refused(format!("the server answered {}", response.status()))),
        }
    }

    fn store(&self, response: Response<ureq::Body>, from: u64) -> Result<End> {
        let doing = || "cannot write a download".to_owned();
        let headers = response.headers().clone();
        let expected = length(&headers).map(|n| n + from);
        let mut hash = Sha256::new();
        let mut file = if from == 0 {
            discard(self.partial);
            fs::File::create(self.partial).doing(doing)?
        } else {
            let mut file = fs::OpenOptions::new()
                .read(true)
                .append(true)
                .open(self.partial)
                .doing(doing)?;
            std::io::copy(&mut file, &mut HashWriter(&mut hash)).doing(doing)?;
            file
        };
        if let Some(validator) = validator(&headers) {
            fs::write(note(self.partial), format!("{}\n{validator}", self.url)).doing(doing)?;
        }
        let mut body = response.into_body().into_reader();
        let mut total = from;
        let mut buffer = vec![0; 1 << 16];
        let appended = from > 0;
        let broken = |reason: String| Ok(End::Broken { reason, appended });
        loop {
            // What came so far stays for the next run.
            check_interrupt(self.cancel)?;
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) => {
                    return broken(format!("the connection broke after {total} bytes: {e}"));
                }
            };
            file.write_all(&buffer[..n]).doing(doing)?;
            hash.update(&buffer[..n]);
            total += n as u64;
            if total > LARGEST {
                discard(self.partial);
                return Ok(End::Refused(format!("it is larger than {LARGEST} bytes")));
            }
        }
        match expected {
            Some(expected) if expected != total => {
                broken(format!("the connection ended after {total} of {expected} bytes"))
            }
            _ => Ok(End::Whole {
                sha256: hex(hash.finalize()),
                appended,
            }),
        }
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_LENGTH)?.trim().parse().ok()
}

/// The first byte of `Content-Range: bytes 100-199/200`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = text(headers, header::CONTENT_RANGE)?.strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

/// What If-Range may carry: a strong entity tag, else the date.
fn validator(headers: &HeaderMap) -> Option<String> {
    let strong = text(headers, header::ETAG).filter(|t| t.starts_with('"'));
    strong.or(text(headers, header::LAST_MODIFIED)).map(str::to_owned)
}

/// An error without the URL, which may hold a password.
fn said(e: &ureq::Error) -> String {
    match e {
        ureq::Error::RequireHttpsOnly(_) => "it is not https (only a mapped place may be plain http)".into(),
        ureq::Error::HostNotFound => "the host is unknown".into(),
        ureq::Error::BadUri(_) => "it is no URL that can be fetched".into(),
        other => other.to_string(),
    }
}

fn agent(url: &str, mapped: bool, net: &Net) -> Attempt<ureq::Agent> {
    let mut tls = ureq::tls::TlsConfig::builder();
    if let Some(file) = net.env.get("SSL_CERT_FILE") {
        tls = tls.root_certs(certificates(Path::new(file))?);
    }
    let proxy = match proxy(url, net) {
        Ok(proxy) => proxy,
        Err(why) => return Ok(Err(why)),
    };
    let config = ureq::Agent::config_builder()
        .https_only(!mapped)
        .http_status_as_error(false)
        .proxy(proxy)
        .tls_config(tls.build())
        .user_agent(concat!("bm/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .build();
    Ok(Ok(config.new_agent()))
}

fn certificates(file: &Path) -> Result<ureq::tls::RootCerts> {
    let pem = fs::read(file).doing(|| "cannot read the certificates of `SSL_CERT_FILE`".into())?;
    let found: Vec<_> = ureq::tls::parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(ureq::tls::PemItem::Certificate(c)) => Some(c),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(Error::new(Exit::Host, "there is no certificate in `SSL_CERT_FILE`").detail("file", file.display()));
    }
    Ok(ureq::tls::RootCerts::Specific(Arc::new(found)))
}

/// The proxy for `url`, from the environment given to fetching children and not from bm's own.
fn proxy(url: &str, net: &Net) -> Result<Option<ureq::Proxy>, String> {
    let get = |name: &str| {
        let upper = name.to_ascii_uppercase();
        let value = net.env.get(name).or_else(|| net.env.get(&upper));
        value.filter(|v| !v.is_empty())
    };
    let own = if url.starts_with("https:") {
        "https_proxy"
    } else {
        "http_proxy"
    };
    let Some(proxy) = get(own).or_else(|| get("all_proxy")) else {
        return Ok(None);
    };
    if get("no_proxy").is_some_and(|list| is_exempt(host(url), list)) {
        return Ok(None);
    }
    let bad = || format!("the proxy of `{own}` cannot be used: {}", public_url(proxy));
    ureq::Proxy::new(proxy).map(Some).map_err(|_| bad())
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or(rest);
    let host = host.rsplit('@').next().unwrap_or(host);
    match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => host.split(':').next().unwrap_or(host),
    }
}

fn is_exempt(host: &str, list: &str) -> bool {
    list.split([',', ' ']).filter(|w| !w.is_empty()).any(|word| {
        let domain = word.trim_start_matches('*').trim_start_matches('.');
        word == "*"
            || host == domain
            || host
                .strip_suffix(domain)
                .is_some_and(|h| h.ends_with('.') && !domain.is_empty())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn proxies_come_from_the_given_environment() {
        let env = [
            ("https_proxy", "http://proxy:3128"),
            ("NO_PROXY", "intern.org, .example.org"),
        ];
        let net = Net {
            env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Net::default()
        };
        for (url, proxied) in [
            ("https://x.org/a", true),
            ("http://x.org/a", false),
            ("https://intern.org/a", false),
            ("https://u@a.intern.org:8443/a", false),
            ("https://notintern.org/a", true),
            ("https://www.example.org", false),
        ] {
            assert_eq!(proxy(url, &net).unwrap().is_some(), proxied, "{url}");
        }
        assert_eq!(host("https://[::1]:80/x"), "::1");
    }

    #[test]
    fn only_strong_validators_are_used() {
        let headers = |pairs: &[(header::HeaderName, &'static str)]| -> HeaderMap {
            pairs
                .iter()
                .map(|(n, v)| (n.clone(), header::HeaderValue::from_static(v)))
                .collect()
        };
        let date = (header::LAST_MODIFIED, "Mon, 01 Jan 2024 00:00:00 GMT");
        assert_eq!(
            validator(&headers(&[(header::ETAG, "\"x\""), date.clone()])).unwrap(),
            "\"x\""
        );
        assert_eq!(
            validator(&headers(&[(header::ETAG, "W/\"x\""), date.clone()])).unwrap(),
            date.1
        );
        assert_eq!(validator(&headers(&[])), None);
        assert_eq!(
            range_start(&headers(&[(header::CONTENT_RANGE, "bytes 5-9/10")])),
            Some(5)
        );
        assert_eq!(range_start(&headers(&[(header::CONTENT_RANGE, "items 5-9/10")])), None);
    }
}
