-- verb: note entry
-- what: adds to an entry of the audit how many more were done, where no script did it, and other values that it has
-- request
--   entry, unaudited
--   number   how many more
--   values   none, or JSON: {name: value} to be written in it
-- reply
--   done   {entry: JSON of the entry with all its values; empty if it ended}

--@include envelope
--@include audit_progress

note_done(tonumber(request.number))
local text = redis.pcall('HGET', BEGUN, request.entry)
local entry = type(text) == 'string' and entry_of(text)
if entry and request.values then
  for name, value in pairs(cjson.decode(request.values)) do entry[name] = value end
  text = cjson.encode(entry)
  write_to_audit('HSET', BEGUN, request.entry, text)
end
return answer('done', {entry = entry and text or ''})
