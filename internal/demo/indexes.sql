CREATE INDEX circulation_event_occurred_at ON circulation_event (occurred_at, id);
CREATE INDEX circulation_event_patron ON circulation_event (patron_id);
CREATE INDEX fine_circulation ON fine (circulation_id);
CREATE INDEX damage_claim_circulation ON damage_claim (circulation_id);
