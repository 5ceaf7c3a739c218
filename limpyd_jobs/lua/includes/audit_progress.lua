-- Progress: a step of several adds what it did to an entry of the audit. This name means the same everywhere:
--   entry   the token of an entry that was begun, see begin_entry.lua; or none

--@include audit
--@include clock

-- Adds to an entry how many more were done; does nothing if there is none.
local function note_done(done)
  local entry = request.entry and entry_of(redis.pcall('HGET', BEGUN, request.entry))
  if not entry then return end
  entry.done, entry.last = entry.done + done, now_text()
  write_to_audit('HSET', BEGUN, request.entry, cjson.encode(entry))
end
