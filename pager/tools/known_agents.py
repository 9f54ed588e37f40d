"""The tools that known agents bring themselves: they identify the agent, and differ from added ones.

What an agent's own tools say is how it works: how it edits, plans, waits and ends. So they are sent whole until an
agent's sessions show that they are not called. Tools of MCP servers have names of another form (``mcp__server__tool``,
``server_tool``), and many clients do not say which program they are; but no two of these lists look alike.
"""

from collections.abc import Collection, Mapping

ALIKE = 3
"""How many of an agent's tools a request must offer for it to count as that agent's."""

CHANCE = 0.5
"""How likely a session is taken to call one of its agent's own tools, where nothing else is known of it."""


def plain_name(tool: str) -> str:
    """A tool's name in small letters only."""
    return tool.lower().replace("_", "").replace("-", "")


_AGENTS = {
    "Claude Code": """
        Agent AskUserQuestion Bash BashOutput CronCreate CronDelete CronList Edit EnterPlanMode EnterWorktree
        ExitPlanMode ExitWorktree Glob Grep KillBash KillShell LS LSP ListMcpResourcesTool Monitor MultiEdit
        NotebookEdit NotebookRead PowerShell Read ReadMcpResourceTool RemoteTrigger ScheduleWakeup SendMessage Skill
        SlashCommand StructuredOutput Task TaskCreate TaskGet TaskList TaskOutput TaskStop TaskUpdate TeamCreate
        TeamDelete TodoRead TodoWrite ToolSearch WebFetch WebSearch Write""",
    "Codex": """
        apply_patch close_agent create_goal exec exec_command followup_task get_goal grep_files image_generation
        interrupt_agent js_repl js_repl_reset list_agents list_dir list_mcp_resource_templates list_mcp_resources
        local_shell read_file read_mcp_resource report_agent_job_result request_permissions request_user_input
        request_user_input_async resume_agent send_input send_message shell shell_command sleep spawn_agent
        spawn_agents_on_csv tool_search tool_suggest update_goal update_plan view_image wait wait_agent web_search
        write_stdin""",
    "Copilot CLI": """
        apply_patch ask_user bash create edit exit_plan_mode fetch_copilot_cli_documentation glob grep list_agents
        list_bash list_powershell powershell read_agent read_bash read_powershell report_intent show_file skill sql
        stop_bash stop_powershell store_memory str_replace_editor task task_complete update_todo view web_fetch
        web_search write_agent write_bash write_powershell""",
    "Copilot in an editor": """
        apply_patch create_and_run_task create_directory create_file create_new_jupyter_notebook
        create_new_workspace edit_notebook_file fetch_webpage file_search get_changed_files get_errors
        get_project_setup_info get_search_view_results get_task_output get_terminal_output get_vscode_api
        github_repo grep_search insert_edit_into_file install_extension list_code_usages list_dir manage_todo_list
        memory multi_replace_string_in_file open_simple_browser read_file read_notebook_cell_output
        replace_string_in_file run_in_terminal run_notebook_cell run_subagent run_task run_tests run_vscode_command
        semantic_search terminal_last_command terminal_selection test_failure test_search think view_image""",
    "Cline": """
        access_mcp_resource act_mode_respond ask_followup_question ask_question attempt_completion browser_action
        condense editor execute_command fetch_web_content list_code_definition_names list_files
        load_mcp_documentation new_rule new_task plan_mode_respond read_file read_files replace_in_file report_bug
        run_commands search_codebase search_files spawn_agent submit_and_exit team_attach_outcome_fragment
        team_await_runs team_broadcast team_cancel_run team_cleanup team_create_outcome team_finalize_outcome
        team_list_outcomes team_list_runs team_mission_log team_read_mailbox team_review_outcome_fragment
        team_run_task team_send_message team_shutdown_teammate team_spawn_teammate team_status team_task
        use_mcp_tool use_skill use_subagents web_fetch web_search write_to_file""",
    "Roo Code, Kilo Code": """
        access_mcp_resource apply_diff apply_patch ask_followup_question attempt_completion browser_action
        codebase_search edit_file execute_command fetch_instructions generate_image insert_content
        list_code_definition_names list_files new_task read_command_output read_file run_slash_command
        search_and_replace search_files search_replace skill switch_mode update_todo_list use_mcp_tool write_to_file""",
    "OpenCode": """
        apply_patch bash batch codesearch edit glob grep invalid list ls lsp multiedit patch plan_enter plan_exit
        question read skill task todoread todowrite webfetch websearch write""",
    "Qwen Code, Gemini CLI": """
        activate_skill agent ask_user ask_user_question complete_task cron_create cron_delete cron_list
        delegate_to_agent edit enter_plan_mode exit_plan_mode get_goal get_internal_docs glob google_web_search
        grep_search list_agents list_background_processes list_directory loop_wakeup lsp monitor notebook_edit
        read_background_output read_file read_many_files read_mcp_resource replace report_findings run_shell_command
        save_memory search_file_content send_message skill task task_stop todo_write tool_call tool_search
        update_goal web_fetch web_search write_file write_todos zoom_image""",
    "goose": """
        analyze apps__create_app apps__delete_app apps__iterate_app apps__list_apps chatrecall__chatrecall delegate
        developer__analyze developer__image_processor developer__list_windows developer__screen_capture
        developer__shell developer__text_editor dynamic_task__create_task edit extensionmanager__list_resources
        extensionmanager__manage_extensions extensionmanager__read_resource
        extensionmanager__search_available_extensions load load_skill platform__manage_schedule recipe__final_output
        shell skills__loadSkill subagent todo__todo_read todo__todo_write tree write""",
    "Continue": """
        AskQuestion Bash CheckBackgroundJob Checklist Edit Exit Fetch List MultiEdit Read ReportFailure Search
        Skills Status Subagent UploadArtifact Write""",
    "deepagents": """
        compact_conversation delete edit_file execute glob grep ls read_file shell task write_file write_todos""",
    "Cursor": """
        apply_patch codebase_search create_diagram delete_file edit_file edit_notebook fetch_rules file_search
        glob_file_search grep grep_search list_dir read_file read_lints reapply run_terminal_cmd search_replace
        todo_write update_memory web_search""",
    "Crush": """
        agent agentic_fetch bash download edit fetch glob grep job_kill job_output ls lsp_diagnostics lsp_references
        multiedit sourcegraph todos view write""",
    "Zed": """
        copy_path create_directory create_file delete_path diagnostics edit_file fetch find_path grep list_directory
        move_path now open read_file restore_file_from_disk save_file spawn_agent streaming_edit_file terminal
        thinking web_search""",
    "OpenHands": """
        browser delegate execute_bash execute_ipython_cell finish request_condensation str_replace_editor
        task_tracker think""",
    "smolagents": "final_answer python_interpreter user_input visit_webpage web_search",
}  # fmt: skip

_TOOLS: Mapping[str, frozenset[str]] = {
    agent: frozenset(map(plain_name, names.split())) for agent, names in _AGENTS.items()
}


def brought(tools: Collection[str]) -> frozenset[str]:
    """Those of these tools that a known agent has brought itself; none where no agent is recognised by them."""
    plain = {tool: plain_name(tool) for tool in tools}
    offered = frozenset(plain.values())
    own = frozenset().union(*(its for its in _TOOLS.values() if len(its & offered) >= ALIKE))
    return frozenset(tool for tool, name in plain.items() if name in own)
