//! The initramfs of a machine: this program, DiskSpd, the libraries that they load, and the kernel's
//! modules for QEMU's devices.
//!
//! Promises: holds no secret and nothing of the job; is made of the host's files, anew for each run,
//! and never changes the host.

use crate::state::Microvms;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the parts lie in the machine.
pub const FLEET: &str = "bin/fleet";
const DISKSPD: &str = "bin/diskspd";
pub const MODULES: &str = "modules";
/// PCI devices, the network, and the port that jobs come by.
const WANTED: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];
/// Bytes of a list of modules, and of a file that is packed.
const LIST_BYTES_MAX: u64 = 16 << 20;
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The kernel of the machines, and the directory of its modules if it has any.
///
/// # Errors
/// If it is not there.
pub fn kernel(microvms: &Microvms) -> Result<(PathBuf, Option<PathBuf>), String> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let (kernel, modules) = match &microvms.kernel {
        Some(kernel) => (kernel.clone(), microvms.modules.clone()),
        None => {
            let modules =
                microvms.modules.clone().unwrap_or_else(|| Path::new("/lib/modules").join(&release));
            (Path::new("/boot").join(format!("vmlinuz-{release}")), Some(modules))
        }
    };
    File::open(&kernel).map_err(|error| {
        format!("the machines' kernel {}: {error}; --kernel names another", kernel.display())
    })?;
    Ok((kernel, modules))
}

/// Writes the initramfs.
///
/// # Errors
/// Which part is missing.
pub fn write(path: &Path, diskspd: &Path, modules: Option<&Path>) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let mut archive = Archive::new(io::BufWriter::new(File::create(path).map_err(failed)?));
    let fleet = std::env::current_exe().map_err(failed)?;
    let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
    let diskspd = find(diskspd).ok_or_else(|| format!("{} is not on the path", diskspd.display()))?;
    for (name, program) in [(FLEET, &fleet), (DISKSPD, &diskspd)] {
        for library in libraries(program)? {
            files.insert(library.trim_start_matches('/').to_owned(), library.into());
        }
        files.insert(name.to_owned(), program.clone());
    }
    if let Some(directory) = modules {
        for (number, module) in needed_modules(directory)?.iter().enumerate() {
            let name = Path::new(module).file_name().unwrap_or_default().to_string_lossy();
            // The guest loads modules in the order of their names.
            files.insert(format!("{MODULES}/{number:02}-{name}"), directory.join(module));
        }
    }
    for directory in ["bin", "dev", "proc", "sys", "tmp", MODULES] {
        archive.directory(directory).map_err(failed)?;
    }
    // Without it the first process has nowhere to complain.
    archive.console().map_err(failed)?;
    for (name, source) in files {
        let mut bytes = Vec::new();
        File::open(&source)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
            .map_err(|error| format!("{}: {error}", source.display()))?;
        trim(&mut bytes);
        archive.file(&name, &bytes).map_err(failed)?;
    }
    archive.finish().map_err(failed)
}

/// A program of the path, as a shell finds it.
pub fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|found| found.is_file())
}

/// The libraries of a program, its loader among them; none if it is linked statically.
fn libraries(program: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("ldd").arg(program).output().map_err(|error| {
        format!("ldd, which tells the libraries of a program, could not be started: {error}")
    })?;
    // ldd fails for a static program, which has no libraries.
    listed_libraries(&String::from_utf8_lossy(&output.stdout))
        .map_err(|missing| format!("{} misses a library: {missing}", program.display()))
}

/// The absolute paths in ldd's output.
///
/// # Errors
/// The line of a library that was not found.
pub fn listed_libraries(text: &str) -> Result<Vec<String>, String> {
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        return Err(missing.trim().to_owned());
    }
    let path =
        |line: &str| line.split_ascii_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    Ok(text.lines().filter_map(path).collect())
}

/// The module files that the devices take, relative to the directory, in the order in which they are loaded.
fn needed_modules(directory: &Path) -> Result<Vec<String>, String> {
    let list = |name: &str| {
        let path = directory.join(name);
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text))
            .map(|_| text)
            .map_err(|error| format!("{}: {error}; --modules names the kernel's modules", path.display()))
    };
    ordered_modules(&list("modules.dep")?, &list("modules.builtin")?)
        .map_err(|missing| format!("{} has no module {missing}", directory.display()))
}

/// Parses modules.dep (depmod(8)): each file, a colon, and the files that it needs, those loaded first last.
///
/// # Errors
/// The name of a module that is neither there nor built in.
pub fn ordered_modules(dependencies: &str, built_in: &str) -> Result<Vec<String>, String> {
    let mut ordered: Vec<String> = Vec::new();
    for wanted in WANTED {
        if built_in.lines().any(|line| module_name(line) == wanted) {
            continue;
        }
        let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
        let (file, needed) = lines
            .into_iter()
            .find(|(file, _)| module_name(file) == wanted)
            .ok_or_else(|| wanted.to_owned())?;
        for file in needed.split_ascii_whitespace().rev().chain([file]) {
            if !ordered.iter().any(|known| known == file) {
                ordered.push(file.to_owned());
            }
        }
    }
    Ok(ordered)
}

/// `virtio_net` of `kernel/drivers/net/virtio-net.ko.xz`.
fn module_name(path: &str) -> String {
    let file = path.trim().rsplit('/').next().unwrap_or_default();
    file.split('.').next().unwrap_or_default().replace('-', "_")
}

/// Cuts the part of an ELF program that is not loaded off its end: its sections, which debug
/// information makes large.
///
/// Anything that is not such a file stays as it is. Offsets are those of ELF-64, little endian.
pub fn trim(bytes: &mut Vec<u8>) {
    if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
        return;
    }
    let number = |at: usize, length: usize| -> Option<usize> {
        let field = bytes.get(at..at.checked_add(length)?)?;
        let value = field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    // e_type: a file that is no program or library, such as a module, lives by its sections.
    if !matches!(number(16, 2), Some(2 | 3)) {
        return;
    }
    let end = || -> Option<usize> {
        let (start, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let mut end = start.checked_add(size.checked_mul(count)?)?;
        for index in 0..count {
            let header = start.checked_add(index.checked_mul(size)?)?;
            // p_offset and p_filesz.
            end =
                end.max(number(header.checked_add(8)?, 8)?.checked_add(number(header.checked_add(32)?, 8)?)?);
        }
        Some(end)
    };
    let Some(end) = end().filter(|end| *end >= 64 && *end <= bytes.len()) else { return };
    bytes.truncate(end);
    // e_shoff, then e_shnum and e_shstrndx: set to no sections.
    for field in [40..48, 60..64] {
        if let Some(field) = bytes.get_mut(field) {
            field.fill(0);
        }
    }
}

/// An archive as the kernel unpacks it: cpio(5), "newc".
struct Archive<W> {
    out: W,
    entries: u32,
    written: usize,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

impl<W: Write> Archive<W> {
    const fn new(out: W) -> Self {
        Self { out, entries: 0, written: 0 }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), bytes: &[u8]) -> io::Result<()> {
        let size = u32::try_from(bytes.len()).map_err(|_| io::Error::other("a file of 4 GiB or more"))?;
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let header =
            [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name.len() as u32 + 1, 0];
        let mut text = String::from("070701");
        for field in header {
            text += &format!("{field:08x}");
        }
        text += name;
        text.push('\0');
        self.padded(text.as_bytes())?;
        self.padded(bytes)
    }

    /// Each part begins at a multiple of four bytes.
    fn padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        let padding = bytes.len().wrapping_neg() % 4;
        self.written += bytes.len() + padding;
        self.out.write_all(&[0; 4][..padding])
    }

    fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY, (0, 0), &[])
    }

    /// A file, and the directories above it.
    fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let above: Vec<&Path> = Path::new(name).ancestors().skip(1).collect();
        for directory in above.into_iter().rev().filter_map(Path::to_str).filter(|name| !name.is_empty()) {
            // The kernel leaves an existing directory as it is.
            self.directory(directory)?;
        }
        self.entry(name, PROGRAM, (0, 0), bytes)
    }

    fn console(&mut self) -> io::Result<()> {
        self.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[])
    }

    fn finish(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()
    }
}

/// The last lines of a file, for messages.
pub fn end_of(path: &Path, lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last: Vec<&str> = text.lines().rev().take(lines).collect();
    last.into_iter().rev().map(str::trim).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEPENDENCIES: &str = "\
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio-pci.ko.xz: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
";

    #[test]
    fn modules_come_after_those_that_they_need() {
        let modules = ordered_modules(DEPENDENCIES, "kernel/drivers/char/virtio_console.ko\n").unwrap();
        let names: Vec<String> = modules.iter().map(|path| module_name(path)).collect();
        assert_eq!(names, ["virtio_ring", "virtio", "virtio_pci", "failover", "virtio_net"]);
        assert_eq!(ordered_modules(DEPENDENCIES, ""), Err("virtio_console".to_owned()));
        let all_built_in = "a/virtio_pci.ko\na/virtio_net.ko\na/virtio_console.ko";
        assert_eq!(ordered_modules("", all_built_in), Ok(vec![]));
    }

    #[test]
    fn libraries_are_the_paths_that_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(listed_libraries(text).unwrap(), ["/lib/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(listed_libraries("\tnot a dynamic executable\n").unwrap(), Vec::<String>::new());
        assert!(listed_libraries("\tlibx.so => not found\n").is_err());
    }

    #[test]
    fn a_program_without_its_sections_still_runs() {
        let mut bytes = fs::read("/bin/true").unwrap();
        let before = bytes.len();
        // Debug information is like this: bytes at the end that no segment has.
        bytes.extend([7; 4096]);
        trim(&mut bytes);
        assert!(bytes.len() <= before, "{} of {before}", bytes.len());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("true");
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Command::new(&path).status().unwrap().success());
    }

    #[test]
    fn an_archive_is_one_that_cpio_reads() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.console().unwrap();
        archive.file("lib/x/libc.so", b"abcde").unwrap();
        archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        // Magic, number, mode: a program that all may read.
        assert!(text.contains("07070100000004000081ed"), "{text}");
        assert!(text.contains("lib/x/libc.so\0") && text.contains("abcde\0") && text.contains("TRAILER!!!"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_trimming_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), is_elf: bool) {
            if is_elf {
                bytes.splice(0..0, *b"\x7fELF\x02\x01");
            }
            let before = bytes.len();
            trim(&mut bytes);
            prop_assert!(bytes.len() <= before);
        }

        #[test]
        fn no_list_makes_it_panic(dependencies in "[a-z_/.:\\n ]{0,200}", built_in in "[a-z_/.\\n]{0,100}") {
            let _ = ordered_modules(&dependencies, &built_in);
        }
    }
}
