package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

const completionLong = `Print the completion script for a shell. It completes commands and flags, and asks curfew
for the names of policies and databases and the ids of runs.

  bash        curfew completion bash > /etc/bash_completion.d/curfew
  zsh         curfew completion zsh > "${fpath[1]}/_curfew"
  fish        curfew completion fish > ~/.config/fish/completions/curfew.fish
  powershell  curfew completion powershell >> $PROFILE

bash needs the package bash-completion (version 2) to be installed and loaded.
Then start a new shell.`

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print the completion script for bash, zsh, fish or powershell",
		Long:      completionLong,
		Example:   `  source <(curfew completion bash)      # for this shell only`,
		Args:      args(1, 1, "a shell: bash, zsh, fish or powershell"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.stdout)
			}
			hint := "bash, zsh, fish or powershell"
			if near := nearest(args[0], shells); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return usageError(hint, "no completion for %q", args[0])
		},
	}
}
