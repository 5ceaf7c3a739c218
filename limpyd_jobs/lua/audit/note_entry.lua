-- verb: note entry
-- what: adds to an entry of the audit how many more were done, where no script did it
-- request
--   entry, unaudited
--   number   how many more
-- reply
--   done

--@include envelope
--@include audit_progress

note_done(tonumber(request.number))
return answer('done')
