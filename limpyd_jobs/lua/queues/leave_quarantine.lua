-- verb: leave quarantine
-- what: puts entries of a quarantine back in the waiting list of their queue, or drops them
-- request
--   queue_key
--   idents    JSON, a list: the entries
--   drop      '1' to drop them
--   entry, unaudited
-- reply
--   done   {number: how many were there}

--@include envelope
--@include signals
--@include audit_progress

local base, number = request.queue_key, 0
redis.call('LLEN', base .. ':waiting')  -- fails before anything is written if the key is not a list
note_done(0)  -- the same if the audit cannot be written
for _, entry in ipairs(cjson.decode(request.idents)) do
  if redis.call('LREM', base .. ':_quarantine', 1, entry) == 1 then
    if not request.drop then redis.call('RPUSH', base .. ':waiting', entry) end
    number = number + 1
  end
end
note_done(number)
if number > 0 and not request.drop then notify_worker(base) end
return answer('done', {number = number})
