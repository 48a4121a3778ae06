//! Lists that come in parts: the client's request, and as many entries as fit. Beside them, one entry
//! of a level.

use super::Win32;
use super::ndr::{BadStub, Reader, Writer};

/// Most bytes of one answer, even if the client asks for more.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// The answer with one structure of a level, which `write` writes, or with the status for which there is none.
pub(super) fn answer_of_level<T>(
    level: u32,
    found: Result<T, Win32>,
    write: impl FnOnce(&mut Writer, T),
) -> Vec<u8> {
    let mut out = Writer::default();
    out.u32(level);
    out.pointer_if(found.is_ok());
    let status = match found {
        Ok(found) => {
            write(&mut out, found);
            Win32::SUCCESS
        }
        Err(status) => status,
    };
    out.u32(status.0);
    out.into_stub()
}

/// A level and a container that the client leaves empty; then what it prefers and where it stopped.
pub(super) struct Enumeration {
    pub(super) level: u32,
    pub(super) bytes_max: usize,
    pub(super) resume: Option<u32>,
}

impl Enumeration {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BadStub> {
        let level = reader.u32()?;
        if reader.u32()? != level {
            return Err(BadStub);
        }
        if reader.pointer()? {
            // Entries read, and the buffer that is for the server to fill.
            reader.u32()?;
            if reader.pointer()? {
                return Err(BadStub);
            }
        }
        let preferred = reader.u32()? as usize;
        let resume = if reader.pointer()? { Some(reader.u32()?) } else { None };
        Ok(Self { level, bytes_max: preferred.min(ANSWER_BYTES_MAX), resume })
    }

    pub(super) fn refuse(&self, status: Win32) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.level);
        out.u32(self.level);
        out.null();
        self.finish(&mut out, 0, None, status);
        out.into_stub()
    }

    /// Writes as many of `entries` as fit, from where the client stopped.
    pub(super) fn answer<T>(
        &self,
        entries: &[T],
        fixed: impl Fn(&mut Writer, &T),
        targets: impl Fn(&mut Writer, &T),
    ) -> Vec<u8> {
        let from = (self.resume.unwrap_or(0) as usize).min(entries.len());
        let rest = entries.get(from..).unwrap_or_default();
        self.answer_part(rest, rest.len(), None, |shown| (from + shown) as u32, fixed, targets)
    }

    /// Writes as many of `rest` as fit. `total`: their number from the client's place on; `more_at`: the
    /// place of those that are not in `rest`; `resume_at`: the place from which a client continues that was
    /// shown this many.
    pub(super) fn answer_part<T>(
        &self,
        rest: &[T],
        total: usize,
        more_at: Option<u32>,
        resume_at: impl Fn(usize) -> u32,
        fixed: impl Fn(&mut Writer, &T),
        targets: impl Fn(&mut Writer, &T),
    ) -> Vec<u8> {
        let mut used = 0;
        let fitting = rest
            .iter()
            .take_while(|entry| {
                let mut alone = Writer::default();
                fixed(&mut alone, entry);
                targets(&mut alone, entry);
                used += alone.len();
                used <= self.bytes_max
            })
            .count();
        // One entry always goes, or the client would ask for ever.
        let shown = rest.get(..fitting.max(1).min(rest.len())).unwrap_or_default();
        let next = if shown.len() < rest.len() { Some(resume_at(shown.len())) } else { more_at };

        let mut out = Writer::default();
        out.u32(self.level);
        out.u32(self.level);
        out.pointer();
        out.count(shown.len());
        out.pointer();
        out.count(shown.len());
        shown.iter().for_each(|entry| fixed(&mut out, entry));
        shown.iter().for_each(|entry| targets(&mut out, entry));
        let status = if next.is_none() { Win32::SUCCESS } else { Win32::MORE_DATA };
        self.finish(&mut out, total, next, status);
        out.into_stub()
    }

    pub(super) fn finish(&self, out: &mut Writer, total: usize, next: Option<u32>, status: Win32) {
        out.count(total);
        out.pointer_if(self.resume.is_some());
        if self.resume.is_some() {
            out.u32(next.unwrap_or(0));
        }
        out.u32(status.0);
    }
}
