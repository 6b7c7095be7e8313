"""The two dashboards: what an operator sees of the consortium, and what a hospital sees of its own agents."""

from __future__ import annotations

from typing import Final

from deploy.monitoring.panels import GOOD_IF_ONE, GOOD_IF_ZERO, Dashboard, Panel, PanelRow, Query

_NAMED: Final = "* on (study) group_left (name) fedward_coordinator_study_info"
_OF_STUDY: Final = '{study=~"$study"}'
_DAY: Final = 86_400
_ENDS_SOON: Final = ((None, "red"), (2 * _DAY, "orange"), (3 * _DAY, "green"))
_FEW_BYTES: Final = ((None, "red"), (2e9, "orange"), (10e9, "green"))

CONSORTIUM: Final = Dashboard(
    "fedward-consortium",
    "FedWard: consortium",
    "For operators: whether the coordinator serves, which studies move, and who is waited for.",
    (
        PanelRow(
            "The coordinator",
            (
                Panel(
                    "Active coordinators",
                    "stat",
                    (Query("fedward:coordinators_active:sum"),),
                    "One should be. With none no study goes on.",
                    steps=GOOD_IF_ONE,
                ),
                Panel(
                    "Short of something",
                    "stat",
                    (Query("sum(fedward_coordinator_short)"),),
                    "Disk, memory, files or database; the log says which.",
                    steps=GOOD_IF_ZERO,
                ),
                Panel(
                    "Drains",
                    "stat",
                    (Query("max(fedward_coordinator_draining)"),),
                    "1 while no further round begins.",
                    steps=GOOD_IF_ZERO,
                ),
                Panel(
                    "Room for sealed uploads",
                    "stat",
                    (Query("min(fedward_coordinator_spool_free_bytes)"),),
                    "Free on the disk of the spool.",
                    unit="bytes",
                    steps=_FEW_BYTES,
                ),
                Panel(
                    "Certificate lasts",
                    "stat",
                    (Query('min(fedward:certificate_left:seconds{job="fedward-coordinator"})'),),
                    "It is renewed by itself long before it ends.",
                    unit="s",
                    steps=_ENDS_SOON,
                ),
                Panel(
                    "Version",
                    "table",
                    (Query("fedward_coordinator_build_info"),),
                    "Of FedWard and of Python, at each machine.",
                ),
            ),
            height=4,
        ),
        PanelRow(
            "Studies",
            (
                Panel(
                    "Studies by state",
                    "timeseries",
                    (Query("sum by (state) (fedward_coordinator_studies)", "{{state}}"),),
                    "How many studies run, wait, pause or are over.",
                ),
                Panel(
                    "Round",
                    "timeseries",
                    (Query(f"fedward_coordinator_round{_OF_STUDY} {_NAMED}", "{{name}}"),),
                    "The current round of each study.",
                ),
                Panel(
                    "In this phase for",
                    "timeseries",
                    (Query(f"fedward_coordinator_phase_elapsed_seconds{_OF_STUDY} {_NAMED}", "{{name}}: {{phase}}"),),
                    "Seconds since the current phase began.",
                    unit="s",
                ),
                Panel(
                    "Waits no more in",
                    "table",
                    (Query(f"fedward_coordinator_phase_left_seconds{_OF_STUDY} {_NAMED}"),),
                    "Seconds until whoever has not answered is left behind.",
                    unit="s",
                ),
            ),
            height=8,
        ),
        PanelRow(
            "Silos",
            (
                Panel(
                    "Waited for",
                    "table",
                    (Query(f"fedward_coordinator_waiting_for{_OF_STUDY} {_NAMED}"),),
                    "The silos that a study waits for now.",
                ),
                Panel(
                    "Not taking part",
                    "table",
                    (Query(f'fedward_coordinator_member_state{{study=~"$study", state!="active"}} {_NAMED}'),),
                    "Silos that are away, busy, without data, set aside or lost.",
                ),
                Panel(
                    "Silent for",
                    "bargauge",
                    (Query("sort_desc(fedward:silo_silent:seconds)", "{{silo}}"),),
                    "Seconds since each silo was last heard. An agent calls every ten seconds.",
                    unit="s",
                    steps=((None, "green"), (60, "orange"), (600, "red")),
                ),
                Panel(
                    "Slow beyond what is neutral",
                    "timeseries",
                    (Query(f"fedward_coordinator_silo_slow_seconds{_OF_STUDY} > 0", "{{silo}}"),),
                    "What each silo has taken of its budget of slowness.",
                    unit="s",
                ),
            ),
            height=8,
        ),
        PanelRow(
            "Rounds and traffic",
            (
                Panel(
                    "Attempts within an hour",
                    "timeseries",
                    (Query("fedward:attempts:increase1h", "{{outcome}}"),),
                    "Rounds that were committed, and attempts that failed.",
                ),
                Panel(
                    "Nine of ten phases last at most",
                    "timeseries",
                    (Query("fedward:phase_seconds:p90_1h", "{{phase}}"),),
                    "Over the last hour, by phase.",
                    unit="s",
                ),
                Panel(
                    "Sealed bytes",
                    "timeseries",
                    (
                        Query("fedward:received_bytes:rate5m", "received: {{kind}}"),
                        Query("fedward:sent_bytes:rate5m", "sent: {{kind}}"),
                    ),
                    "Uploads and downloads by kind.",
                    unit="Bps",
                ),
                Panel(
                    "Spool",
                    "timeseries",
                    (
                        Query("fedward_coordinator_spool_bytes", "used"),
                        Query("fedward_coordinator_spool_free_bytes", "free"),
                    ),
                    "Sealed uploads of the rounds under way, and the room that is left.",
                    unit="bytes",
                ),
            ),
            height=8,
        ),
        PanelRow(
            "Refusals and errors",
            (
                Panel(
                    "Calls refused",
                    "timeseries",
                    (
                        Query(
                            "sum by (caller, code) (increase(fedward_coordinator_refused_calls_total[1h]))",
                            "{{caller}}: {{code}}",
                        ),
                    ),
                    "By the certificate that called.",
                ),
                Panel(
                    "Connections",
                    "timeseries",
                    (
                        Query("increase(fedward_coordinator_failed_handshakes_total[1h])", "handshakes failed"),
                        Query(
                            "sum by (reason) (increase(fedward_coordinator_closed_connections_total[1h]))",
                            "closed: {{reason}}",
                        ),
                    ),
                    "What ended at the door, within an hour.",
                ),
                Panel(
                    "Database errors",
                    "timeseries",
                    (Query("increase(fedward_coordinator_database_errors_total[1h])", "{{kind}}"),),
                    "Within an hour.",
                ),
                Panel(
                    "Memory and processor",
                    "timeseries",
                    (
                        Query('process_resident_memory_bytes{job="fedward-coordinator"}', "memory"),
                        Query('rate(process_cpu_seconds_total{job="fedward-coordinator"}[5m])', "processors"),
                    ),
                    "Of the coordinator's process.",
                ),
            ),
            height=8,
        ),
    ),
    choices=(("study", "fedward_coordinator_study_info"),),
)

HOSPITAL: Final = Dashboard(
    "fedward-hospital",
    "FedWard: hospital",
    "For a hospital: its agents, its budget, the studies that ask. Nothing of this leaves the hospital.",
    (
        PanelRow(
            "The agents",
            (
                Panel(
                    "Reaches the coordinator",
                    "stat",
                    (Query("fedward_silo_connected", "{{instance}}"),),
                    "1 while the coordinator answers.",
                    steps=((None, "red"), (1, "green")),
                ),
                Panel(
                    "Faults",
                    "stat",
                    (Query("sum(fedward_silo_fault)"),),
                    "A fault that nobody has cleared: noise alone is sent.",
                    steps=GOOD_IF_ZERO,
                ),
                Panel(
                    "Short of something",
                    "stat",
                    (Query("sum(fedward_silo_short)"),),
                    "The agent cannot read or write its own files.",
                    steps=GOOD_IF_ZERO,
                ),
                Panel(
                    "Room for the state",
                    "stat",
                    (Query("min(fedward_silo_state_free_bytes)"),),
                    "Free on the disk of the state folder.",
                    unit="bytes",
                    steps=_FEW_BYTES,
                ),
                Panel(
                    "Certificate lasts",
                    "stat",
                    (Query('min(fedward:certificate_left:seconds{job="fedward-silo"})'),),
                    "It is renewed by itself long before it ends.",
                    unit="s",
                    steps=_ENDS_SOON,
                ),
                Panel(
                    "Coordinator's audit log broken",
                    "stat",
                    (Query("max(fedward_silo_coordinator_audit_log_broken)"),),
                    "1 if it was rewritten, or put back from a backup.",
                    steps=GOOD_IF_ZERO,
                ),
            ),
            height=4,
        ),
        PanelRow(
            "Studies",
            (
                Panel(
                    "Studies that ask",
                    "bargauge",
                    (Query("sum by (verdict) (fedward_silo_studies_asking)", "{{verdict}}"),),
                    "By what becomes of them. Those that wait need a person.",
                ),
                Panel(
                    "Refusals within a day",
                    "timeseries",
                    (Query("sum by (reason) (increase(fedward_silo_refusals_total[1d]))", "{{reason}}"),),
                    "Studies that the policy or a missing file has refused.",
                ),
                Panel(
                    "Last committed round",
                    "timeseries",
                    (
                        Query(
                            'fedward_silo_round{study=~"$study"}'
                            " * on (study) group_left (name) max by (study, name) (fedward_silo_study_info)",
                            "{{name}}",
                        ),
                    ),
                    "Of each study.",
                ),
                Panel(
                    "Disputed within a day",
                    "timeseries",
                    (Query("sum by (task) (increase(fedward_silo_disputes_total[1d]))", "{{task}}"),),
                    "Tasks that the agent could not do, or found wrong.",
                ),
            ),
            height=8,
        ),
        PanelRow(
            "Budget",
            (
                Panel(
                    "Budget left",
                    "stat",
                    (Query("fedward:budget_left:ratio", "{{instance}}"),),
                    "Of the epsilon that the policy allows over all studies.",
                    unit="percentunit",
                    steps=((None, "red"), (0.1, "orange"), (0.3, "green")),
                ),
                Panel(
                    "Epsilon spent",
                    "timeseries",
                    (
                        Query("fedward_silo_epsilon_spent", "spent: {{instance}}"),
                        Query("fedward_silo_epsilon_left", "left: {{instance}}"),
                    ),
                    "Over all studies.",
                ),
                Panel(
                    "Epsilon by study",
                    "timeseries",
                    (Query('fedward_silo_study_epsilon_spent{study=~"$study"}', "{{study}}"),),
                    "What each study cost alone.",
                ),
                Panel(
                    "Epsilon by tensor",
                    "timeseries",
                    (Query('fedward_silo_tensor_epsilon_spent{study=~"$study"}', "{{study}}: {{tensor}}"),),
                    "What its encoder, heads, counts and metrics cost.",
                ),
            ),
            height=8,
        ),
        PanelRow(
            "Work and traffic",
            (
                Panel(
                    "Half of all contributions take at most",
                    "timeseries",
                    (
                        Query(
                            "histogram_quantile(0.5, sum by (le, tensor)"
                            " (rate(fedward_silo_compute_seconds_bucket[1h])))",
                            "{{tensor}}",
                        ),
                    ),
                    "Training included, without sealing.",
                    unit="s",
                ),
                Panel(
                    "Sealed bytes",
                    "timeseries",
                    (
                        Query("sum by (kind) (rate(fedward_silo_sent_bytes_total[5m]))", "sent: {{kind}}"),
                        Query("sum by (kind) (rate(fedward_silo_received_bytes_total[5m]))", "received: {{kind}}"),
                    ),
                    "What has left the hospital, and what has come.",
                    unit="Bps",
                ),
                Panel(
                    "Ledger last verified",
                    "stat",
                    (Query("max(fedward_silo_ledger_verification_age_seconds)"),),
                    "At the start, before each charge, and daily while studies ask.",
                    unit="s",
                ),
                Panel(
                    "Memory and processor",
                    "timeseries",
                    (
                        Query('process_resident_memory_bytes{job="fedward-silo"}', "memory: {{instance}}"),
                        Query('rate(process_cpu_seconds_total{job="fedward-silo"}[5m])', "processors: {{instance}}"),
                    ),
                    "Of the agents' processes.",
                ),
            ),
            height=8,
        ),
    ),
    choices=(("study", "fedward_silo_study_info"),),
)

ALL: Final = (CONSORTIUM, HOSPITAL)
