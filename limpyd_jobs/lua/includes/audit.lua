-- Audit: what people do is written down in the step that does it. These names mean the same everywhere:
--   audit       JSON, a list of names and values: an entry to be written with this step; or none
--   unaudited   '1' to go on if Redis refuses to write to the audit, because it is full

--@include envelope

local AUDIT, BEGUN, MAX_ENTRIES = 'limpyd-jobs:audit', 'limpyd-jobs:audit:begun', 10000

local function write_to_audit(...)
  local reply = redis.pcall(...)
  local why = type(reply) == 'table' and reply.err
  if why and not request.unaudited then error('NOT AUDITED: ' .. why) end
  return why or nil
end

-- Writes an entry, if one is given. Called before anything is changed: if it fails, nothing is.
local function write_entry(audit)
  local names_and_values = cjson.decode(audit or '[]')
  if #names_and_values > 0 then
    not_audited = write_to_audit('XADD', AUDIT, 'MAXLEN', '~', MAX_ENTRIES, '*', unpack(names_and_values))
  end
end

-- An entry that was begun, and has not ended; none if another program wrote something else.
local function entry_of(text)
  local is_json, entry = pcall(cjson.decode, text)
  return is_json and type(entry) == 'table' and type(entry.done) == 'number' and entry or nil
end
