package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

// version is set by the linker in released builds.
var version = ""

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  curfew version --output json | jq -r .version`,
		Args:    args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := programVersion()
			return a.answer(v, func(p *printer) {
				commit := ""
				if v.Commit != "" {
					commit = " (" + shortID(v.Commit) + ")"
				}
				p.linef("curfew %s%s, %s, %s/%s", v.Version, commit, v.Go, v.OS, v.Arch)
			})
		},
	}
}

// programVersion is what the linker and the build know of this program.
func programVersion() api.Version {
	v := api.Version{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}
