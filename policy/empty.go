package policy

// Empty is what a file says that says only where the ledger is: of an application that has tasks of its own and no policies.
func Empty(ledger string) *File {
	return &File{Version: 1, Ledger: ledger, Databases: map[string]*Database{}, Engine: DefaultEngine(), Retention: DefaultRetention()}
}
