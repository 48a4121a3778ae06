//! SMB2 headers, compounds, and every command's request and response with all that their offsets lead to.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smb::wire::*;

fn views(message: &[u8]) {
    if let Ok(view) = NegotiateRequest::parse(message) {
        let _ = view.dialects().map(Iterator::count);
        let _ = view.contexts().count();
    }
    if let Ok(view) = NegotiateResponse::parse(message) {
        let _ = (view.security_buffer().is_ok(), view.contexts().count());
    }
    if let Ok(view) = SessionSetupRequest::parse(message) {
        let _ = view.security_buffer();
    }
    if let Ok(view) = SessionSetupResponse::parse(message) {
        let _ = view.security_buffer();
    }
    let _ = TreeConnectRequest::parse(message).map(|view| view.path());
    let _ = TreeConnectResponse::parse(message).is_ok();
    if let Ok(view) = CreateRequest::parse(message) {
        let _ = view.name();
        let _ = view.contexts().map(Iterator::count);
    }
    let _ = CreateResponse::parse(message).map(|view| view.contexts().map(Iterator::count));
    let _ = (CloseRequest::parse(message).is_ok(), CloseResponse::parse(message).is_ok());
    let _ = FlushRequest::parse(message).is_ok();
    let _ = ReadRequest::parse(message).map(|view| view.channel_info().map(<[_]>::len));
    let _ = ReadResponse::parse(message).map(|view| view.data().map(<[_]>::len));
    if let Ok(view) = WriteRequest::parse(message) {
        if let Ok(range) = view.data_range() {
            assert!(message.get(range).is_some());
        }
        let _ = view.channel_info().map(<[_]>::len);
    }
    let _ = LockRequest::parse(message).map(|view| view.locks().map(<[_]>::len));
    let _ = BreakAcknowledgment::parse(message).is_ok();
    if let Ok(view) = IoctlRequest::parse(message)
        && let Ok(input) = view.input()
    {
        let _ = CopyChunkRequest::parse(input).is_ok();
        let _ = ValidateNegotiateRequest::parse(input).map(|(_, dialects)| dialects.count());
    }
    let _ = IoctlResponse::parse(message).map(|view| view.output().map(<[_]>::len));
    let _ = ErrorResponse::parse(message).map(|view| view.data().map(|data| symlink_error(data, 0).is_ok()));
    let _ = QueryDirectoryRequest::parse(message).map(|view| view.pattern());
    if let Ok(view) = OutputBufferResponse::parse(message)
        && let Ok(data) = view.data()
    {
        let _ = parse_notify_records(data);
        for class in 0..=u8::MAX {
            if let Some(class) = DirectoryClass::from_wire(class) {
                let _ = parse_directory(class, data);
            }
        }
    }
    let _ = QueryInfoRequest::parse(message).map(|view| view.input().map(|input| parse_get_ea_names(input)));
    let _ = QueryInfoRequest::parse(message).map(|view| view.input().map(QueryQuota::parse));
    let _ = SetInfoRequest::parse(message).map(|view| view.buffer().map(QuotaInformation::parse_list));
    if let Ok(view) = SetInfoRequest::parse(message)
        && let Ok(buffer) = view.buffer()
    {
        let _ = (RenameInformation::parse(buffer, false), RenameInformation::parse(buffer, true));
        let _ = FullEas::new(buffer).count();
    }
}

fuzz_target!(|input: &[u8]| {
    let _ = TransformHeader::parse(input).is_ok();
    let _ = CompressionHeader::parse(input).is_ok();
    let _ = smb::crypto::TransformHeader::parse(input).is_ok();
    let mut rest = Some(input);
    while let Some(chain) = rest {
        let Ok((message, next)) = split_compound(chain) else { return };
        views(message);
        rest = next;
    }
});
