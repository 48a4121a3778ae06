package main

import (
	"context"

	smb2 "github.com/cloudsoda/go-smb2"
)

type Share = smb2.Share
type ResponseError = smb2.ResponseError

func dial(address, user, password string) (*smb2.Session, error) {
	dialer := &smb2.Dialer{Initiator: &smb2.NTLMInitiator{User: user, Password: password}}
	return dialer.Dial(context.Background(), address)
}
