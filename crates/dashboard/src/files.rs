//! The pages' files, which are part of the program.
//!
//! Promises: every answer has a Content-Security-Policy by which a browser loads nothing from
//! elsewhere, and runs no script inside a page.

use api::Pages;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

struct File {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal, $name:literal, $kind:expr;)*) => {
        [$(File { path: $path, kind: $kind, bytes: include_bytes!(concat!("../web/", $name)) }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

static FILES: [File; 27] = files! {
    "/", "index.html", HTML;
    "/dashboard/style.css", "style.css", STYLE;
    "/dashboard/icon.svg", "icon.svg", "image/svg+xml";
    "/dashboard/app.js", "app.js", SCRIPT;
    "/dashboard/dom.js", "dom.js", SCRIPT;
    "/dashboard/server.js", "server.js", SCRIPT;
    "/dashboard/words.js", "words.js", SCRIPT;
    "/dashboard/parts.js", "parts.js", SCRIPT;
    "/dashboard/samples.js", "samples.js", SCRIPT;
    "/dashboard/actions.js", "actions.js", SCRIPT;
    "/dashboard/accounts.js", "accounts.js", SCRIPT;
    "/dashboard/events.js", "events.js", SCRIPT;
    "/dashboard/overview.js", "overview.js", SCRIPT;
    "/dashboard/nodes.js", "nodes.js", SCRIPT;
    "/dashboard/disks.js", "disks.js", SCRIPT;
    "/dashboard/storage.js", "storage.js", SCRIPT;
    "/dashboard/clients.js", "clients.js", SCRIPT;
    "/dashboard/jobs.js", "jobs.js", SCRIPT;
    "/dashboard/performance.js", "performance.js", SCRIPT;
    "/dashboard/fleet.js", "fleet.js", SCRIPT;
    "/dashboard/plan.js", "plan.js", SCRIPT;
    "/dashboard/vendor/preact.js", "vendor/preact.js", SCRIPT;
    "/dashboard/vendor/hooks.js", "vendor/hooks.js", SCRIPT;
    "/dashboard/vendor/htm.js", "vendor/htm.js", SCRIPT;
    "/dashboard/vendor/uplot.js", "vendor/uplot.js", SCRIPT;
    "/dashboard/vendor/uplot.css", "vendor/uplot.css", STYLE;
    "/dashboard/vendor/licences.txt", "vendor/licences.txt", TEXT;
};

/// Scripts, styles, pictures and requests of this server only; no frames, no forms that leave the page, no other base.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub fn pages() -> Pages {
    FILES.iter().fold(Pages::default(), |pages, file| {
        let tag = format!("\"{:016x}\"", codes::crc64(file.bytes));
        pages.open(file.path, get(move |headers: HeaderMap| answer(file, tag.clone(), headers)))
    })
}

async fn answer(file: &'static File, tag: String, asked: HeaderMap) -> Response {
    let is_known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => file.bytes.into_response(),
    };
    let fixed: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, file.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Fetched again each time: another version of the server has other pages.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let headers = answer.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vendored files name their home in comments, and SVG its namespace; neither is loaded.
    fn own() -> impl Iterator<Item = &'static File> {
        FILES.iter().filter(|file| !file.path.contains("/vendor/"))
    }

    #[test]
    fn pages_name_no_other_server() {
        for file in own() {
            let text = std::str::from_utf8(file.bytes).unwrap().replace("http://www.w3.org/2000/svg", "");
            for scheme in ["http://", "https://", "\"//", "'//", "ws://", "wss://"] {
                assert!(!text.contains(scheme), "{} has {scheme}", file.path);
            }
        }
    }

    #[test]
    fn pages_have_no_scripts_or_styles_in_them_that_the_policy_forbids() {
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        for script in page.split("<script").skip(1) {
            assert!(script.split('>').next().unwrap().contains("src=\"/dashboard/"), "{script}");
            assert!(script.split('>').nth(1).unwrap().starts_with("</script"), "{script}");
        }
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onload="));
        for file in own() {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for forbidden in ["eval(", "new Function", "innerHTML", "localStorage"] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", file.path);
            }
        }
    }

    #[test]
    fn every_file_that_a_script_imports_is_served() {
        for file in own().filter(|file| file.kind == SCRIPT) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for imported in text.split(" from \"./").skip(1) {
                let path = format!("/dashboard/{}", imported.split('"').next().unwrap());
                assert!(FILES.iter().any(|file| file.path == path), "{} imports {path}", file.path);
            }
        }
    }
}
